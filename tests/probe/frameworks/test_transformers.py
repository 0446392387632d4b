"""Transformers: Trainer's steps, micro-batches, phases and loss are known, and its training is the same."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallguard.probe import beats, wire
from stallguard.probe.frameworks import lightning, transformers
from stallguard.probe.frameworks.transformers import StepLosses, TrainerHooks
from stallguard.probe.losses import Losses
from tests.probe.receiver import Receiver
from tests.probe.test_context import context

SCRIPT = Path(__file__).parents[2] / "guarded" / "scripts" / "trainer.py"
# 40 rows are 10 batches of 4: 5 steps of two micro-batches an epoch.
WORDS = ("accumulation=2", "rows=40", "steps=28", "save=10", "eval=epoch", "pause=0")


# Slices in which a step that lacks memory is trained again; 1: it is not.
INSIDE = [1, 8]


@pytest.fixture(scope="module", params=INSIDE)
def trained(other_python, tmp_path_factory, request):
    """Return what one training said, and what it printed."""
    with Receiver() as receiver:
        folder = tmp_path_factory.mktemp("trainer")
        heard = receiver.run([other_python("hf"), str(SCRIPT), *WORDS], 120, cwd=folder, inside=request.param)
    assert heard.code == 0, heard.err[-3000:]
    assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
    return heard, json.loads(heard.out.splitlines()[-1])


def test_steps_micro_batches_epochs_and_the_end_are_known(trained):
    last = trained[0].last()
    names = ("beats", "fit_beats", "fits", "micro", "total", "epoch", "epochs", "batch", "batches", "saves", "checks")
    # The sixth epoch ends at step 28, after 3 of its 5; it is evaluated like the five before, on 5 batches of 8.
    assert {name: last[name] for name in names} == {
        "beats": 28, "fit_beats": 28, "fits": 1, "micro": 56, "total": 28, "epoch": 5, "epochs": 6, "batch": 3,
        "batches": 3, "saves": 3, "checks": 30,
    }  # fmt: skip
    assert wire.SOURCES[last["source"]] == "torch"
    assert {"fit", "callbacks", "save", "torch_step", "torch_loader"} <= set(trained[0].hello()["hooks"])


def test_its_phases_are_told_apart(trained):
    found = {name: {wire.PHASES[one] for one in phases} for name, phases in trained[1]["phases"].items()}
    assert found == {
        "first": {"first run", "step"}, "training": {"step"}, "evaluation": {"validation"}, "saving": {"checkpoint"},
    }  # fmt: skip
    assert trained[0].last()["step_ns"] > 0
    assert trained[0].last()["input_ns"] > 0


def test_the_loss_of_a_step_is_known(trained):
    assert 0.1 < wire.bits_float(trained[0].last()["loss_bits"]) < 50, "the mean of squares that it trains on"


def test_the_training_is_the_same(trained, other_python, tmp_path):
    quiet = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    command = [other_python("hf"), SCRIPT, *WORDS]
    plain = subprocess.run(command, cwd=tmp_path, env=quiet, capture_output=True, check=True)
    expected = json.loads(plain.stdout.splitlines()[-1])
    assert {name: trained[1][name] for name in expected} == expected


BROKEN = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return {"loss": (self.weight * x).mean() * (float("nan") if self.calls > 5 else 1.0)}
arguments = TrainingArguments(
    "out", max_steps=600, report_to=[], disable_tqdm=True, save_strategy="no", use_cpu=True, label_names=["x"],
    remove_unused_columns=False, logging_steps=5,
)
Trainer(Model(), arguments, train_dataset=[{"x": torch.ones(1)}] * 40).train()
"""


@pytest.mark.parametrize("inside", INSIDE)
def test_a_loss_that_trainer_filters_out_of_its_logs_is_told(other_python, tmp_path, inside):
    with Receiver() as receiver:
        heard = receiver.run([other_python("hf"), "-c", BROKEN], 120, cwd=tmp_path, inside=inside)
    assert heard.code == 0, heard.err[-3000:]
    (told,) = [note for note in heard.notes if note["kind"] == "nonfinite"]
    # It is read 20 times a second, so some steps later than it breaks.
    assert told["text"].startswith("the loss is nan from epoch ")
    assert math.isnan(wire.bits_float(heard.last()["loss_bits"]))


@pytest.mark.parametrize(
    ("logs", "half", "is_told"),
    [
        ({"loss": 0.0, "grad_norm": math.nan}, False, True), ({"loss": 0.0, "grad_norm": math.nan}, True, False),
        ({"loss": 0.5, "grad_norm": math.inf}, False, False), ({"loss": math.nan}, True, True),
        ({"lr": 0.1}, False, False),
    ],
)  # fmt: skip
def test_on_a_gpu_gradients_that_are_no_numbers_show_what_the_logs_leave_out(logs, half, is_told):
    made, told = context(), []
    made.losses = Losses(made.beats, lambda kind, text, **_: told.append(kind))
    hooks, state = TrainerHooks(made), SimpleNamespace(global_step=3)
    for _ in range(2):
        hooks.log(None, SimpleNamespace(fp16=half), state, None, logs=logs)
    assert told == ["nonfinite"] * is_told


class Loss(float):
    """A loss on the CPU."""

    is_cpu = True


def losses_that_are_read(monkeypatch, made, step, milliseconds):
    """Return the losses that are read of ten steps, each of which lasts so long; `step(loss)` trains one."""
    now, read = [made.beats._last], []
    for module in (beats, lightning, transformers):
        monkeypatch.setattr(module, "monotonic_ns", lambda: now[0])
    made.losses = SimpleNamespace(of_step=lambda value, batch: read.append(value))
    for number in range(10):
        made.beats.enter(beats.INPUT)
        made.beats.input_ends(beats.STEP)
        now[0] += milliseconds * 1_000_000
        step(Loss(number))
    return read


def test_a_loss_on_a_device_is_looked_at_again_after_a_while_only(monkeypatch):
    now, made = [1_000], context()
    monkeypatch.setattr(transformers, "monotonic_ns", lambda: now[0])
    losses = StepLosses(made)
    losses.take(SimpleNamespace(is_cpu=False))
    assert (losses.due, losses.count, losses.are_read) == (1_000 + transformers.LOSS_EVERY, 0, False)


@pytest.mark.parametrize(("milliseconds", "read"), [(1000, list(range(10))), (60, list(range(10))), (20, [0, 3, 6, 9])])
def test_the_loss_of_each_slow_step_is_read_and_that_of_some_short_ones(monkeypatch, milliseconds, read):
    made = context()
    hooks, state = TrainerHooks(made), SimpleNamespace(global_step=1)
    trains = hooks.training_step(lambda trainer, loss: loss)
    ends = hooks.step_end(lambda *_: None)

    def step(loss):
        trains(None, loss)
        ends(None, None, state, None)

    assert losses_that_are_read(monkeypatch, made, step, milliseconds) == read
