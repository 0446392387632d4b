"""Real frameworks: a loss that stops being finite is reported, once a fit, and nothing else is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stallguard.probe import losses, wire
from tests.probe.receiver import Receiver, python

SCRIPT = Path(__file__).parents[1] / "children" / "broken_losses.py"
EXPECTED = [
    (losses.BROKEN, "loss", ""),
    (losses.METRIC, "masked", ""),
    (losses.METRIC, "val_loss", ""),
    (losses.BROKEN, "loss", "TerminateOnNaN"),
    (losses.BROKEN, "loss", ""),
]


def reported(interpreter, **environment):
    """Return what the probe reported of the script: kind, name, and what ends the fit."""
    with Receiver() as receiver:
        done = receiver.run([interpreter, str(SCRIPT)], 300, TF_CPP_MIN_LOG_LEVEL="3", **environment)
    assert done.code == 0, done.err[-3000:]
    told = [note for note in done.notes if note["kind"] in (losses.BROKEN, losses.METRIC)]
    assert [note["facts"]["value"] for note in told if note["kind"] == losses.METRIC] == ["nan", "nan"]
    assert not done.last()["flags"] & wire.FLAG_STEPPED_ASIDE
    assert done.last()["flags"] & wire.FLAG_LOSS_BROKEN
    return [(one["kind"], one["facts"].get("name", "loss"), one["facts"].get("ends", "")) for one in told]


@pytest.mark.tf
def test_keras_3_on_tensorflow():
    assert reported(sys.executable) == EXPECTED


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_keras_3_on_another_backend(backend, other_python):
    assert reported(other_python(backend), KERAS_BACKEND=backend) == EXPECTED


def test_keras_2(other_python):
    assert reported(other_python("keras2")) == EXPECTED


TORCH = """
import torch
torch.manual_seed(0)
model, x = torch.nn.Linear(4, 1), torch.randn(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(20_000):
    if step == 100:
        optimizer.param_groups[0]["lr"] = 1e9
    optimizer.zero_grad()
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    if step == 50:
        loss = loss * float("nan") * 0  # one broken batch, whose step is skipped
    loss.backward()
    if step != 50:
        optimizer.step()
"""
# The same in what torch.compile traces: the probe must not be compiled with it, nor warned of.
COMPILED = """
import torch
model, x = torch.nn.Linear(4, 1), torch.randn(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e9)
def step():
    optimizer.zero_grad()
    (model(x) ** 2).mean().backward()
    optimizer.step()
step()
compiled = torch.compile(step, backend="eager")
for _ in range(2000):
    compiled()
"""


def test_a_loop_of_torch(other_python):
    with Receiver() as receiver:
        done = receiver.run(python(TORCH, other_python("torch")), 120)
    assert (done.code, done.err) == (0, "")
    [note] = [note for note in done.notes if note["kind"] in (losses.BROKEN, losses.FINITE)]
    place = note["facts"]["where"].split()
    assert place[0] == "batch"
    assert 100 <= int(place[1]) <= 20_000


def test_a_loop_of_torch_that_is_compiled(other_python):
    with Receiver() as receiver:
        done = receiver.run(python(COMPILED, other_python("torch")), 300)
    assert done.code == 0, done.err[-3000:]
    assert "probe" not in done.err, done.err[-3000:]
    assert [note["kind"] for note in done.notes if note["kind"] == losses.BROKEN] == [losses.BROKEN]
    assert done.last()["beats"] >= 100
