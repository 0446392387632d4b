"""Lightning: the steps of its Trainer, micro-batches, phases and loss are known, and its training is the same."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from stallguard.probe import wire
from stallguard.probe.frameworks.lightning import LightningHooks
from tests.probe.receiver import Receiver
from tests.probe.test_context import context

from .test_transformers import losses_that_are_read

SCRIPT = Path(__file__).parents[2] / "guarded" / "scripts" / "lightning_fit.py"
NAMES = ("beats", "fit_beats", "fits", "micro", "total", "epoch", "epochs", "batch", "batches", "saves", "checks")


def heard_of(python, folder, *words):
    """Train; return what the probe said, and what the script printed last."""
    with Receiver() as receiver:
        heard = receiver.run([python, str(SCRIPT), *words], 120, cwd=folder)
    assert heard.code == 0, heard.err[-3000:]
    assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
    return heard, json.loads(heard.out.splitlines()[-1])


@pytest.fixture(scope="module")
def trained(other_python, tmp_path_factory):
    """Of 40 rows in batches of 4: 5 steps of two micro-batches an epoch, then 10 batches of validation."""
    return heard_of(other_python("hf"), tmp_path_factory.mktemp("fit"), "accumulation=2", "epochs=4")


def test_steps_micro_batches_epochs_and_the_end_are_known(trained):
    # Before the first epoch Lightning tries 2 batches of the validation.
    assert {name: trained[0].last()[name] for name in NAMES} == {
        "beats": 20, "fit_beats": 20, "fits": 1, "micro": 40, "total": 20, "epoch": 3, "epochs": 4, "batch": 5,
        "batches": 5, "saves": trained[0].last()["saves"], "checks": 42,
    }  # fmt: skip
    assert trained[0].last()["saves"] >= 4
    assert wire.SOURCES[trained[0].last()["source"]] == "torch"
    assert {"fit", "callbacks", "save", "torch_step", "torch_loader"} <= set(trained[0].hello()["hooks"])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("steps=13",), {"beats": 13, "micro": 0, "total": 13, "epoch": 1, "epochs": -1, "batch": 3, "batches": 10}),
        # The last step of each epoch has one micro-batch only.
        (("accumulation=4", "epochs=2"), {"beats": 6, "micro": 20, "total": 6, "epoch": 1, "batches": 3}),
        (("manual=yes", "epochs=2"), {"beats": 20, "micro": 0, "total": 20, "epoch": 1, "batches": 10}),
        (("epochs=2", "workers=2"), {"beats": 20, "micro": 0, "total": 20, "epoch": 1, "batches": 10}),
    ],
)
def test_other_fits_are_counted_too(other_python, tmp_path, words, expected):
    heard, said = heard_of(other_python("hf"), tmp_path, *words)
    assert {name: heard.last()[name] for name in expected} == expected
    assert said["step"] == expected["beats"]


def test_its_phases_are_told_apart(trained):
    found = {name: {wire.PHASES[one] for one in phases} for name, phases in trained[1]["phases"].items()}
    assert found == {
        "first": {"first run", "step"}, "training": {"step"}, "validation": {"validation"}, "saving": {"checkpoint"},
    }  # fmt: skip
    assert trained[0].last()["step_ns"] > 0
    assert trained[0].last()["input_ns"] > 0


def test_the_loss_of_a_step_is_known(trained):
    assert 0.1 < wire.bits_float(trained[0].last()["loss_bits"]) < 50, "the mean of squares that it trains on"


def test_the_training_is_the_same(trained, other_python, tmp_path):
    # torch makes the directory of its compiler as Lightning imports it.
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")}
    words = [other_python("hf"), SCRIPT, "accumulation=2", "epochs=4"]
    plain = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, check=True)
    expected = json.loads(plain.stdout.splitlines()[-1])
    assert {name: trained[1][name] for name in expected} == expected


def test_a_loss_that_is_no_number_is_told(other_python, tmp_path):
    heard, _ = heard_of(other_python("hf"), tmp_path, "epochs=30", "break=13")
    (told,) = [note for note in heard.notes if note["kind"] == "nonfinite"]
    assert told["text"].startswith("the loss is nan from epoch ")
    assert math.isnan(wire.bits_float(heard.last()["loss_bits"]))


@pytest.mark.parametrize(("milliseconds", "read"), [(1000, list(range(10))), (60, list(range(10))), (20, [0, 3, 6, 9])])
def test_the_loss_of_each_slow_step_is_read_and_that_of_some_short_ones(monkeypatch, milliseconds, read):
    made = context()
    hooks = LightningHooks(made, "lightning.pytorch")
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_idx=0))
    trainer = SimpleNamespace(accumulate_grad_batches=1, fit_loop=loop)
    run = hooks.run(lambda _, loss: {"loss": loss})

    def step(loss):
        run(SimpleNamespace(trainer=trainer), loss)

    assert losses_that_are_read(monkeypatch, made, step, milliseconds) == read
