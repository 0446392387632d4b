"""A fit whose tf.data pipeline has a cache is saved and resumed."""

from __future__ import annotations

import sys

import pytest

from .restarts import Restarts

pytestmark = pytest.mark.tf
SCRIPT = """
import os, signal
import keras, numpy as np, tensorflow as tf
rows = np.ones((16, 4), "float32"), np.ones((16, 1), "float32")
data = tf.data.Dataset.from_tensor_slices(rows).shuffle(8, seed=1).cache(os.environ["CACHE"]).batch(2)
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if os.environ["KILL"] == "%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(data, epochs=2, verbose=0, callbacks=[Killed()])
"""


@pytest.mark.parametrize("file", ["", "cached"])
def test_it_goes_on_from_its_checkpoint(receiver, tmp_path, file):
    (tmp_path / "train.py").write_text(SCRIPT)
    run = Restarts(receiver, tmp_path, tmp_path / "train.py", sys.executable, CACHE=file)
    assert run.attempt(kill="1,3").notes("unsaved") == []
    (sentence,) = run.attempt(resume=True).notes("resume")
    assert sentence.endswith("checkpoint (epoch 2, batch 3)")
