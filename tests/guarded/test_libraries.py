"""A training is resumed the same, wherever its library lies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .runs import guard

pytestmark = pytest.mark.tf
# Killed once in its second epoch; its model keeps a list of tensors that grows.
SCRIPT = """
import os, signal, sys
import numpy as np, tensorflow as tf
keras = tf.keras
keras.utils.set_random_seed(1)
x = np.random.default_rng(1).random((64, 4)).astype("float32")
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        self.model.kept.append(tf.ones((2,)) * batch)
        if self.epoch == 1 and batch == 5 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2), keras.layers.Dense(1)])
model.kept = []
model.compile("adam", "mse")
model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0, callbacks=[Killed()])
print("keras of", os.path.dirname(os.path.dirname(sys.modules["keras"].__file__)))
print("kept", [float(one[0]) for one in model.kept])
print("weights", float(sum(abs(weight).sum() for weight in model.get_weights())))
"""


@pytest.mark.parametrize("environment", ["", "keras2"])
def test_a_clone_of_keras_is_resumed_inside_its_epoch(
    environment: str, other_python: Callable[[str], str], tmp_path: Path
) -> None:
    python = other_python(environment) if environment else sys.executable
    packages = next((Path(python).parent.parent / "lib").glob("python3.*/site-packages"))
    clone = tmp_path / "clone"
    clone.mkdir()
    (clone / "keras").symlink_to(packages / "keras")
    results = []
    for folder in ("guarded", "whole"):
        place = tmp_path / folder
        place.mkdir()
        (place / "train.py").write_text(SCRIPT)
        if folder == "whole":
            (place / "killed").touch()
        words = ("--checkpoint-every", "0", "--checkpoint-cost", "1", "--python", python, "train.py")
        run = guard(place / "home", *words, cwd=place, env={"PYTHONPATH": str(clone)})
        assert run.code == 0, run.err
        results.append(run.out)
        assert "lacks the state" not in run.err
        assert ("resuming from the " in run.err) is (folder == "guarded"), run.err
    assert str(clone).encode() in results[0]
    assert results[0] == results[1]
