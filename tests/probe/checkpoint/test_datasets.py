"""A cache of tf.data in a file keeps a lock of a killed attempt: without help no later attempt would train a batch."""

from __future__ import annotations

import os
import sys
import time

import pytest

from stallguard.probe.checkpoint import datasets

from .restarts import Restarts

SCRIPT = """
import json, os, signal
import keras, tensorflow as tf
keras.utils.set_random_seed(7)
data = tf.data.Dataset.range(400).map(lambda n: (tf.cast([n], tf.float32) / 400, tf.cast([n], tf.float32) / 200))
class Kills(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if os.environ["KILL"] == "0,%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data.shuffle(400).batch(4).cache("cached"), epochs=3, callbacks=[Kills()], verbose=0)
print(json.dumps({"weights": [weight.tolist() for weight in model.get_weights()]}))
"""


@pytest.mark.tf
@pytest.mark.parametrize("name", ["tensorflow", "keras2"])
def test_a_training_killed_while_its_cache_fills_goes_on_as_if_undisturbed(receiver, tmp_path, other_python, name):
    interpreter = sys.executable if name == "tensorflow" else other_python(name)

    def script_in(folder):
        folder.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        return Restarts(receiver, folder, folder / "train.py", interpreter)

    plain = script_in(tmp_path / "plain").undisturbed()
    killed = script_in(tmp_path / "killed")
    killed.attempt(kill="0,0,3")
    lock = killed.folder / "cached_0.lockfile"
    left = lock.exists()
    resumed = killed.attempt(resume=True)

    assert left, "else the test shows nothing"
    assert datasets.REMOVED % lock in resumed.notes()
    # On TensorFlow 2.15 an undisturbed run, too, rarely ends with other weights (2 of about 120).
    yardsticks = [plain.rows]
    if resumed.rows not in yardsticks:
        yardsticks.append(script_in(tmp_path / "again").attempt(guarded=False).rows)
    assert resumed.rows in yardsticks


@pytest.mark.parametrize(
    ("age", "removed"),
    [
        pytest.param(-60, False, id="made before the attempt that noted the cache"),
        pytest.param(5, True, id="made by it"),
        pytest.param(60, False, id="made after this process began"),
    ],
)
def test_only_locks_of_an_attempt_that_is_over_are_removed(tmp_path, age, removed):
    # A name with [1], which has a meaning in a pattern of glob.
    note, lock = tmp_path / datasets.NOTE, tmp_path / "cache[1]_0.lockfile"
    note.write_text(f"{tmp_path}/cache[1]\n")
    lock.touch()
    noted = time.time() - 1000
    os.utime(note, (noted, noted))
    os.utime(lock, (noted + age, noted + age))

    assert datasets.Locks(str(tmp_path), noted + 30).release() == [str(lock)] * removed
    assert lock.exists() != removed
