"""A kill between two epochs, or between the last one and the end of the fit, changes nothing."""

from __future__ import annotations

import sys

import pytest

from .restarts import Restarts

pytestmark = pytest.mark.tf
# Ends itself as an epoch begins or the training ends (AT), after its callback has drawn a number.
SCRIPT = """
import json, os, signal
import keras, numpy as np
keras.utils.set_random_seed(3)
x = np.random.rand(48, 4).astype("float32")
y = x.sum(1, keepdims=True)
at, drawn = os.environ.get("KILL"), []
class Draws(keras.callbacks.Callback):
    def reach(self, place):
        if at == place:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_epoch_begin(self, epoch, logs=None):
        drawn.append(np.random.rand())
        self.reach("epoch %d" % epoch)
    def on_train_end(self, logs=None):
        self.reach("end")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
data = {"x": x, "y": y, "batch_size": 8}
if os.environ.get("STEPS"):
    import tensorflow as tf
    data = {"x": tf.data.Dataset.from_tensor_slices((x, y)).shuffle(48, seed=1).repeat().batch(8), "steps_per_epoch": 6}
history = model.fit(**data, epochs=int(os.environ.get("EPOCHS", "3")), verbose=0, callbacks=[Draws()])
print(json.dumps([history.epoch, history.history, drawn[-1], [w.tolist() for w in model.get_weights()]]))
"""


@pytest.fixture
def train(receiver, tmp_path):
    """Return a function that makes the restarts of the script with an interpreter."""

    def begin(interpreter, **environment):
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        return Restarts(receiver, tmp_path, script, interpreter, **environment)

    return begin


def printed(attempt):
    return [line for line in attempt.heartbeat.out.splitlines() if line.startswith("[[")]


CASES = [
    ("tensorflow", "epoch 1", ""), ("tensorflow", "end", ""), ("tensorflow", "epoch 2", "1"), ("jax", "epoch 1", ""),
    ("jax", "end", ""),
]  # fmt: skip


@pytest.mark.parametrize(("backend", "at", "steps"), CASES)
def test_a_kill_outside_of_the_epochs_changes_nothing(train, other_python, backend, at, steps):
    run = train(sys.executable if backend == "tensorflow" else other_python(backend), KERAS_BACKEND=backend)
    plain = run.undisturbed(STEPS=steps)
    run.attempt(kill=at, STEPS=steps)
    resumed = run.attempt(resume=True, STEPS=steps)

    assert printed(resumed) == printed(plain) != []
    assert resumed.notes("inexact") == []
    assert any("resuming from the" in said for said in resumed.notes())


ENDED = """
import json, os, signal
import keras, numpy as np
keras.utils.set_random_seed(3)
x = np.random.rand(48, 4).astype("float32")
y = x.sum(1, keepdims=True)
class Ends(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if os.environ.get("KILL") and (self.epoch, batch) == (1, 5):
            os.kill(os.getpid(), signal.SIGTERM)  # a last checkpoint is made
def batches():
    for start in range(0, 48, 8):
        yield x[start:start + 8], y[start:start + 8]
class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 6
    def __getitem__(self, index):
        return x[8 * index:8 * index + 8], y[8 * index:8 * index + 8]
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
kinds = {"arrays": lambda: {"x": x, "y": y, "batch_size": 8}, "objects": lambda: {"x": Rows()}}
if os.environ["DATA"] == "unknown":
    import tensorflow as tf
    layout = tf.TensorSpec((8, 4)), tf.TensorSpec((8, 1))
    kinds["unknown"] = lambda: {"x": tf.data.Dataset.from_generator(batches, output_signature=layout)}
history = model.fit(**kinds[os.environ["DATA"]](), epochs=3, verbose=0, callbacks=[Ends()])
print(json.dumps([[history.epoch, history.history, [np.asarray(w).tolist() for w in model.get_weights()]]]))
"""


@pytest.mark.parametrize(
    ("backend", "data"), [("tensorflow", "unknown"), ("torch", "arrays"), ("jax", "arrays"), ("jax", "objects")]
)
def test_an_end_after_the_last_batch_of_an_epoch_changes_nothing(train, other_python, tmp_path, backend, data):
    run = train(sys.executable if backend == "tensorflow" else other_python(backend), KERAS_BACKEND=backend)
    (tmp_path / "train.py").write_text(ENDED)
    plain = run.undisturbed(DATA=data)
    run.attempt(kill="term", DATA=data)
    resumed = run.attempt(resume=True, DATA=data)

    assert printed(resumed) == printed(plain) != []
    if backend == "jax":
        (said,) = resumed.notes("inexact")
        assert "each batch of epoch 2 was trained" in said


REORDERED = """
import json, os, signal
import numpy as np
from tensorflow import keras
keras.utils.set_random_seed(3)
x = np.random.rand(48, 4).astype("float32")
class Rows(keras.utils.Sequence):
    def __init__(self):
        self.order = np.arange(48)
    def __len__(self):
        return 6
    def __getitem__(self, index):
        part = self.order[8 * index:8 * index + 8]
        return x[part] * np.random.uniform(0.9, 1.1), x[part].sum(1, keepdims=True)
    def on_epoch_end(self):
        np.random.shuffle(self.order)
class Kill(keras.callbacks.Callback):
    def reach(self, *place):
        if os.environ.get("KILL") == "%d %d" % place:
            os.kill(os.getpid(), signal.SIGKILL)
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        self.reach(epoch, -1)
    def on_train_batch_end(self, batch, logs=None):
        self.reach(self.epoch, batch)
model = keras.Sequential([keras.layers.Dense(3, input_shape=(4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
history = model.fit(Rows(), epochs=4, shuffle=False, verbose=0, callbacks=[Kill()])
print(json.dumps([[history.epoch, history.history, [w.tolist() for w in model.get_weights()]]]))
"""


@pytest.mark.parametrize("kill", ["1 -1", "2 -1", "1 3", "2 3"])
def test_a_sequence_of_keras_2_that_reorders_itself_goes_on_in_its_order(train, other_python, tmp_path, kill):
    run = train(other_python("keras2"))
    (tmp_path / "train.py").write_text(REORDERED)
    plain = run.undisturbed()
    run.attempt(kill=kill)
    resumed = run.attempt(resume=True)

    assert printed(resumed) == printed(plain) != []
    assert resumed.notes("inexact") == []


def test_a_script_that_asks_for_fewer_epochs_gets_so_many(train):
    run = train(sys.executable)
    plain = run.undisturbed(EPOCHS="1")
    run.attempt(EPOCHS="3")
    resumed = run.attempt(resume=True, EPOCHS="1")

    assert printed(resumed) == printed(plain) != []
    (said,) = resumed.notes("inexact")
    assert "it was trained to the end of epoch 3, and the script asks for 1 epoch" in said


SLICED = """
import json, os, signal
import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(3)
x = np.random.rand(48, 4).astype("float32")
rows = []
class Rows(keras.layers.Layer):
    def call(self, inputs):
        count = tf.py_function(lambda found: rows.append(int(found)) or 0.0, [tf.shape(inputs)[0]], tf.float32)
        with tf.control_dependencies([count]):
            return tf.identity(inputs)
    def compute_output_shape(self, shape):
        return shape
class Kill(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if os.environ.get("KILL") and batch == 3:
            os.kill(os.getpid(), signal.SIGKILL)
model = keras.Sequential([keras.Input((4,)), Rows(), keras.layers.Dense(1)])
model.compile("adam", "mse")  # whose variables a resume makes by tracing the step
model.fit(x, x.sum(1, keepdims=True), 8, epochs=1, verbose=0, callbacks=[Kill()])
print(json.dumps([rows[-2:]]))
"""


def test_a_resumed_training_that_is_asked_for_slices_computes_slices(train, tmp_path):
    run = train(sys.executable)
    (tmp_path / "train.py").write_text(SLICED)
    run.attempt(kill="batch 3")
    resumed = run.attempt(resume=True, slices=2)

    assert printed(resumed) == ["[[4, 4]]"]
    assert any("resuming from the" in said for said in resumed.notes())
    assert resumed.notes("whole") == []
