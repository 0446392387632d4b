"""A checkpoint of a training with another loss is used only if that is asked for."""

from __future__ import annotations

import sys

import pytest

from .restarts import Restarts

SCRIPT = """
import os, signal
import keras, numpy as np
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if os.environ["KILL"] == "%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)
x = np.linspace(0, 1, 256, dtype="float32").reshape(64, 4)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse" if os.environ["KILL"] else "mae")
history = model.fit(x, x.sum(1), 8, epochs=3, verbose=0, callbacks=[Killed()])
print("epochs", history.epoch, len(history.history["loss"]))
"""


@pytest.mark.tf
@pytest.mark.parametrize(
    ("choice", "said", "begins"),
    [
        (
            "fallback",
            "fit 1 starts over: its checkpoint is not used, because what the model is compiled with differs",
            0,
        ),
        ("continue", "fit 1 goes on as it is, though what the model is compiled with differs", 13),
    ],
)
def test_a_checkpoint_of_another_loss_is_used_only_if_that_is_asked_for(receiver, tmp_path, choice, said, begins):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = Restarts(receiver, tmp_path, script, sys.executable, checkpoint_inexact=choice)
    run.attempt(kill="1,5")
    resumed = run.attempt(resume=True)

    assert [text for text in resumed.notes("inexact") if text.startswith(said)], resumed.notes("inexact")
    assert "epochs [0, 1, 2] 3" in resumed.heartbeat.out
    assert resumed.heartbeat.last()["beats"] == 24 - begins
    # A fit that starts over is the same fit: until it is as far again, its batches are trained a second time.
    assert resumed.heartbeat.last()["fits"] == 1
