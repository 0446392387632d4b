"""A training diverges: the run reports it, and a later run resumes from a finite checkpoint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stallguard.errors import NOT_FINITE

from .runs import Guard, stallguard

SCRIPT = """
import time
import numpy as np, keras
keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-3), "mse")
class Steps(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 3:
            self.model.optimizer.learning_rate = 1e9
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)
model.fit(x, x.sum(1, keepdims=True), epochs=8, batch_size=20, verbose=2, callbacks=[Steps()])
"""
OFTEN = ("--checkpoint-every", "0.3", "--checkpoint-cost", "1")

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def diverging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script: Path = tmp_path_factory.mktemp("script") / "train.py"
    script.write_text(SCRIPT)
    return script


def test_it_is_told_once_and_everywhere_and_the_epochs_are_those_of_keras(
    guard_keras: Guard, diverging: Path, tmp_path: Path
) -> None:
    done = guard_keras(tmp_path, *OFTEN, str(diverging))

    assert done.code == 0, done.err
    [said] = done.announced("loss.broken")
    found = re.match(r"the loss is (?:nan|-?inf) from (?:the end of )?epoch 4.* on;", said["text"])
    assert found, said
    assert "the newest checkpoint with finite values is that of" in said["text"]
    first = next(line for line in done.out.decode().splitlines() if "loss: " in line).split("loss: ")[1]
    for verb in ("report", "morning"):
        shown = " ".join(stallguard(tmp_path, verb).out.decode().split())
        assert f"loss nan (from {first})" in shown, re.findall(r"loss [^:;]*", shown)
        assert found[0][:-1] in shown.replace("The loss", "the loss")
        assert "nothing to do" not in shown.lower()
        assert "100 % effective" not in shown
    assert "lower the learning rate" in done.err
    assert done.outcome()["spent"]["loss_not_finite"] > 1.0


def test_a_rollback_leaves_the_last_finite_checkpoint_as_the_newest_and_a_later_run_goes_on_there(
    guard_keras: Guard, diverging: Path, tmp_path: Path
) -> None:
    done = guard_keras(tmp_path, *OFTEN, "--on-nonfinite", "rollback", str(diverging))

    assert done.code == NOT_FINITE, done.err
    assert done.run is not None
    [ends] = done.announced("run.rolled_back")
    assert not list(done.run.glob("checkpoints/*/*/g*/NOT_FINITE"))
    assert list(done.run.glob("checkpoints-not-finite/*/*/g*/NOT_FINITE"))

    again = guard_keras(tmp_path, *OFTEN, "--resume", done.run.name, str(diverging))
    place = ends["checkpoint"].partition(", made")[0].replace("the beginning of epoch 4", "epoch 4, batch 0")
    assert f"({place})" in again.err
    assert again.announced("checkpoint.not_finite") == []


def test_a_resume_from_values_that_are_not_finite_is_said(guard_keras: Guard, diverging: Path, tmp_path: Path) -> None:
    done = guard_keras(tmp_path, *OFTEN, "--on-nonfinite", "stop", str(diverging))
    assert done.code == NOT_FINITE, done.err
    assert done.run is not None
    assert len(done.announced("run.not_rolled_back")) == 1

    again = guard_keras(tmp_path, *OFTEN, "--resume", done.run.name, str(diverging))
    [said] = again.announced("checkpoint.not_finite")
    assert "has values that are not finite" in said["text"]
