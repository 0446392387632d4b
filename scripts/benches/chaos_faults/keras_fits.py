"""Faults of a training with Keras: what it ends with is compared to the bit with an undisturbed one."""

from __future__ import annotations

import functools
import importlib.util
import signal
import sys
import tempfile
import time
from pathlib import Path

from .fault import row
from .stage import LONG, Ended, Stage, expect, until

SCRIPT = """
import hashlib, os, signal, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(3)
x = np.random.default_rng(1).normal(size=(640, 16)).astype("float32")
y = (x.sum(1) > 0).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(640, seed=5).batch(32)
model = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1, "sigmoid")])
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.05)
        print("batch", batch, flush=True)
calls = []
if "handler" in sys.argv:
    signal.signal(signal.SIGURG, lambda number, frame: calls.append(number))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(3))
history = model.fit(data, epochs=4, callbacks=[Slow()], verbose=0)
weights = b"".join(np.asarray(value).tobytes() for value in model.get_weights())
print("weights", hashlib.sha256(weights).hexdigest(), history.history["loss"][-1].hex(), len(calls), flush=True)
sys.exit(7)
"""
SAVING = ("--set", "checkpoint.every=1s", "--set", "checkpoint.cost=1")
START = 4 * LONG  # seconds that an import of TensorFlow can take on a slow machine


def tensorflow() -> str:
    """Say whether this interpreter has TensorFlow."""
    return "" if importlib.util.find_spec("tensorflow") else "this interpreter has no TensorFlow"


@functools.cache
def _undisturbed() -> str:
    """Return the last line of the training without stallguard."""
    with tempfile.TemporaryDirectory(prefix="sgc-") as folder, Stage(Path(folder)) as stage:
        return _last(stage.start([sys.executable, stage.script(SCRIPT)]).ended(START))


def _last(ended: Ended) -> str:
    expect(ended.code == 7, f"exit code {ended.code}: {ended.err[-400:]}")
    return ended.lines[-1]


def _equal(ended: Ended) -> str:
    """Return in words that weights, history and calls are those of the undisturbed training."""
    found = _last(ended)
    expect(found == _undisturbed(), f"{found}, without stallguard {_undisturbed()}")
    return "same weights and history to the bit, exit code 7"


@row(quick=False, needs=tensorflow)
def keras_killed(stage: Stage) -> str:
    """kill -9 of a Keras fit inside its second epoch ->
    the next attempt resumes: weights and history as undisturbed, to the bit"""
    live = stage.guard(stage.script(SCRIPT), options=SAVING)
    training = live.training()
    live.reached(35, START)
    training.kill()
    ended = live.ended(START)
    expect(stage.outcome().attempts == 2, f"{stage.outcome().attempts} attempts")
    expect(stage.events("attempt.resumed"), f"it did not resume; {len(ended.lines) - 81} batches again")
    return f"{_equal(ended)}, {len(ended.lines) - 81} batches again"


@row(quick=False, needs=tensorflow)
def keras_checkpoint_damaged(stage: Stage) -> str:
    """all arrays of the newest checkpoint of a Keras fit are damaged, then kill -9 of the fit ->
    an older one or none is used: weights and history as undisturbed, to the bit"""
    live = stage.guard(stage.script(SCRIPT), options=SAVING)
    training = live.training()
    live.reached(35, START)
    training.suspend()
    generations = sorted(stage.run().checkpoints.glob("*/fit-*/g*"), key=lambda one: int(one.name[1:]))
    path = generations[-1] / "tensors.bin"
    path.write_bytes(bytes(255 - byte for byte in path.read_bytes()))
    training.kill()
    return f"{generations[-1].name} damaged; {_equal(live.ended(START))}"


@row(quick=False, needs=tensorflow)
def keras_handlers_and_stops(stage: Stage) -> str:
    """a Keras fit with its own handlers of SIGURG and SIGTERM; stallguard is stopped for 3 s; `dump` twice ->
    weights and history as without stallguard, to the bit; no handler is called"""
    live = stage.watched(SCRIPT, "handler")
    live.reached(10, START)
    stage.ask("dump")
    live.signal(signal.SIGSTOP)
    time.sleep(3)
    live.signal(signal.SIGCONT)
    until(lambda: stage.ask("dump"), "an answer of the run")
    return _equal(live.ended(START))
