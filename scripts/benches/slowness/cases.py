"""The programs of `scripts/bench slow`, and what is to be said of each.

The line that is meant has the comment `# slow` in the program, so no number of a line is written down twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.scripts import written

PROGRAMS = Path(__file__).resolve().parents[3] / ".cache" / "bench-slow"
MARK = "  # slow"
_CHANCE = "chance = np.random.default_rng(0)"
_SMALL = "model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])"
_LARGE = """model = keras.Sequential([
    keras.layers.Input((512,)), keras.layers.Dense(1024, activation="relu"),
    keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(10, activation="softmax"),
])
model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])"""
PARTS = {
    "keras": "import keras\nimport numpy as np",
    "tensorflow": "import keras\nimport numpy as np\nimport tensorflow as tf",
    "rows": f"{_CHANCE}\nx, y = chance.random((%s, 16), dtype=np.float32), chance.random((%s, 1), dtype=np.float32)",
    "small model": _SMALL,
    "small": f'{_SMALL}\nmodel.compile("sgd", "mse")',
    "large": _LARGE,
    "classes": f"{_CHANCE}\nx = chance.random((2048, 512), dtype=np.float32)\n"
    f"y = chance.integers(0, 10, 2048)\n{_LARGE}",
}


class Case(NamedTuple):
    """A program with one bottleneck; `expected` is the key of its cause, "" for a program without one."""

    name: str
    text: str
    expected: str
    around: str = ""  # what slows it from outside: a key of surroundings.AROUND
    arguments: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The program's file, which is written if it is not there."""
        file, text = PROGRAMS / f"{self.name.replace('-', '_')}.py", written(self.text, PARTS)
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        return file

    @property
    def title(self) -> str:
        """What the program does, in its own words."""
        return self.text.strip("\n").partition("\n")[0]

    @property
    def marked(self) -> tuple[int, ...]:
        """The lines of which any is right; empty if no line of the program is to blame."""
        lines = written(self.text, PARTS).splitlines()
        return tuple(number for number, line in enumerate(lines, 1) if line.endswith(MARK))


_ORDINARY = r"""An ordinary training, to be slowed from outside: argument 1 is the number of epochs, 2 how nice it is.
import os
import sys
%keras
os.nice(int(sys.argv[2]))
%classes
model.fit(x, y, batch_size=128, epochs=int(sys.argv[1]), verbose=2)
"""
CASES = (
    Case("generator", r"""A generator takes 60 ms to give a batch that is trained in 2 ms.
import time
%tensorflow
BATCHES = 600
def batches():
    chance = np.random.default_rng(0)
    for _ in range(BATCHES):
        time.sleep(0.06)  # slow
        yield chance.random((32, 16), dtype=np.float32), chance.random((32, 1), dtype=np.float32)
signature = (tf.TensorSpec((32, 16), tf.float32), tf.TensorSpec((32, 1), tf.float32))
data = tf.data.Dataset.from_generator(batches, output_signature=signature)
%small
model.fit(data, epochs=1, verbose=2)
""", "input-starvation"),
    Case("python-map", r"""Each example is prepared by Python code in Dataset.map.
import math
%tensorflow
def curve(row):
    values = row.numpy().tolist()
    return np.float32([sum(math.sin(value * step) for value in values) for step in range(60)])  # slow
def prepare(row, target):
    prepared = tf.py_function(curve, [row], tf.float32) / 1024
    prepared.set_shape((60,))
    return prepared, target
chance = np.random.default_rng(0)
x, y = chance.random((4000, 1024), dtype=np.float32), chance.random((4000, 1), dtype=np.float32)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(4000).map(prepare).batch(32)
model = keras.Sequential([keras.layers.Input((60,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
model.fit(data, epochs=1, verbose=2)
""", "input-starvation"),
    Case("py-dataset", r"""A keras.utils.PyDataset whose batches are parsed from text, one after the other.
import math
%keras
class Rows(keras.utils.PyDataset):
    "Parses each batch from lines of comma-separated values."
    def __init__(self, lines, size):
        super().__init__()
        self.lines, self.size = lines, size
    def __len__(self):
        return math.ceil(len(self.lines) / self.size)
    def __getitem__(self, number):
        lines = self.lines[number * self.size : (number + 1) * self.size]
        rows = np.array([[float(cell) for cell in line.split(",")] for line in lines], np.float32)  # slow
        return rows[:, 1:], rows[:, :1]
chance = np.random.default_rng(0)
table = chance.random((2000, 2001))
lines = [",".join(f"{cell:.6f}" for cell in row) for row in table]
model = keras.Sequential([keras.layers.Input((2000,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
model.fit(Rows(lines, 50), epochs=40, verbose=2)
""", "input-starvation"),
    Case("remote-file", r"""The input is read from a server that answers slowly: its address is the argument.
import sys
import urllib.request
%tensorflow
def batches():
    for number in range(400):
        with urllib.request.urlopen(f"{sys.argv[1]}/{number}") as answer:  # slow
            rows = np.frombuffer(answer.read(), np.float32).reshape(32, 17)
        yield rows[:, 1:], rows[:, :1]
signature = (tf.TensorSpec((32, 16), tf.float32), tf.TensorSpec((32, 1), tf.float32))
data = tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(2)
%small
model.fit(data, epochs=1, verbose=2)
""", "input-starvation", around="server"),
    Case("callback", r"""A callback describes all weights after each batch.
%keras
class Weights(keras.callbacks.Callback):
    "Keeps the median of the first layer's weights."
    def __init__(self):
        super().__init__()
        self.medians = []
    def on_train_batch_end(self, batch, logs=None):
        kernel = self.model.layers[0].kernel.numpy().ravel().tolist()
        ordered = sorted(abs(weight) for weight in kernel)  # slow
        self.medians.append(ordered[len(ordered) // 2])
chance = np.random.default_rng(0)
x, y = chance.random((3200, 512), dtype=np.float32), chance.random((3200, 1), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((512,)), keras.layers.Dense(256), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
model.fit(x, y, batch_size=32, epochs=6, verbose=2, callbacks=[Weights()])
""", "slow-callback"),
    Case("checkpoints", r"""A checkpoint is written after each batch.
%keras
chance = np.random.default_rng(0)
x, y = chance.random((3200, 256), dtype=np.float32), chance.random((3200, 1), dtype=np.float32)
model = keras.Sequential(
    [keras.layers.Input((256,)), keras.layers.Dense(1024), keras.layers.Dense(1024), keras.layers.Dense(1)]
)
model.compile("adam", "mse")
saving = keras.callbacks.ModelCheckpoint("last.keras", save_freq=1)
model.fit(x, y, batch_size=32, epochs=5, verbose=2, callbacks=[saving])
""", "costly-checkpoints"),
    Case("validation", r"""The whole validation set is evaluated after each 10 batches.
%keras
class Validation(keras.callbacks.Callback):
    "Evaluates after each 10 batches."
    def on_train_batch_end(self, batch, logs=None):
        if batch % 10 == 9:
            self.model.evaluate(x_test, y_test, batch_size=32, verbose=0)  # slow
chance = np.random.default_rng(0)
x, y = chance.random((6400, 64), dtype=np.float32), chance.random((6400, 1), dtype=np.float32)
x_test, y_test = x[:3200], y[:3200]
model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(256), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
model.fit(x, y, batch_size=32, epochs=14, verbose=2, callbacks=[Validation()])
""", "frequent-validation"),
    Case("python-loss", r"""The loss computes weights in Python from each pair of examples, so the model runs eagerly.
import math
%tensorflow
def weighted(expected, given):
    "Weigh an example less the more there are like it."
    values = expected.numpy().ravel().tolist()
    alike = [sum(math.exp(-abs(value - other)) for other in values) for value in values]  # slow
    return tf.reduce_mean(tf.square(given - expected) / tf.constant(alike)[:, None])
%rows 6400
%small model
model.compile("sgd", weighted, run_eagerly=True)
model.fit(x, y, batch_size=640, epochs=90, verbose=2)
""", "slow-script"),
    Case("growing-list", r"""
A loop of the script's own keeps each loss, and walks them all for the mean after each batch.
%tensorflow
%rows 32
%small model
optimizer = keras.optimizers.SGD(0.01)
@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
losses = []
for batch in range(10000):
    losses.append(train(x, y))
    mean = sum(float(loss) for loss in losses) / len(losses)  # slow
    if batch % 1000 == 0:
        print(batch, mean, flush=True)
""", "falling-pace"),
    Case("growing-sleep", r"""A callback waits a little longer after each batch.
import time
%keras
class Report(keras.callbacks.Callback):
    "Waits 10 ms after the first batch, 1 % more after each."
    seconds = 0.01
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.seconds)  # slow
        self.seconds *= 1.01
%rows 13600
%small
model.fit(x, y, batch_size=32, epochs=1, verbose=2, callbacks=[Report()])
""", "falling-pace"),
    Case("model-rebuilt", r"""A new model is made for each batch, so that each batch is traced anew.
%keras
def built():
    layers = [keras.layers.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(1)]
    model = keras.Sequential(layers)  # slow
    model.compile("sgd", "mse")
    return model
chance = np.random.default_rng(0)
weights = built().get_weights()
for batch in range(400):
    x, y = chance.random((32, 16), dtype=np.float32), chance.random((32, 1), dtype=np.float32)
    model = built()  # slow
    model.set_weights(weights)
    loss = model.train_on_batch(x, y)  # slow
    weights = model.get_weights()
    if batch % 20 == 0:
        print(batch, loss, flush=True)
""", "model-rebuilt"),
    Case("retracing", r"""A number of Python is an argument of a tf.function: each new value is traced anew.
%tensorflow
%rows 32
model = keras.Sequential(
    [keras.layers.Input((16,)), *[keras.layers.Dense(16) for _ in range(6)], keras.layers.Dense(1)]
)
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)
@tf.function
def train(x, y, scale):
    with tf.GradientTape() as tape:
        loss = scale * tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
for batch in range(300):
    loss = train(x, y, 1.0 / (batch + 1))  # slow
    if batch % 50 == 0:
        print(batch, float(loss), flush=True)
""", "retracing"),
    Case("float64", r"""The model computes in float64.
%keras
keras.backend.set_floatx("float64")
chance = np.random.default_rng(0)
x = chance.random((2048, 512))
y = chance.integers(0, 10, 2048)
%large
model.fit(x, y, batch_size=128, epochs=120, verbose=2)
""", "double-precision"),
    Case("tiny-batches", r"""One example a batch, and a small model.
%keras
%rows 4000
%small
model.fit(x, y, batch_size=1, epochs=9, verbose=2)
""", "tiny-batches"),
    Case("held-lock", r"""A thread that writes the statistics holds the lock that each batch needs.
import threading
import time
%keras
lock = threading.Lock()
statistics = []
def write():
    while True:
        with lock:
            time.sleep(0.1)  # as slow as a network file system
            statistics.clear()
        time.sleep(0.01)
class Statistics(keras.callbacks.Callback):
    "Hands each loss to the thread."
    def on_train_batch_end(self, batch, logs=None):
        with lock:  # slow
            statistics.append(logs["loss"])
threading.Thread(target=write, daemon=True).start()
%rows 102400
%small
model.fit(x, y, batch_size=32, epochs=1, verbose=2, callbacks=[Statistics()])
""", "lock-contention"),
    Case("little-memory", r"""
A table larger than the memory that the group of processes has: its rows are read from the disk again and again.
import pathlib
%keras
ROWS, WIDTH = 131072, 2048  # 1 GiB
if not pathlib.Path("table.npy").exists():
    table = np.lib.format.open_memmap("table.npy", "w+", np.float32, (ROWS, WIDTH))
    for start in range(0, ROWS, 4096):
        table[start : start + 4096] = np.random.default_rng(start).random((4096, WIDTH), dtype=np.float32)
    table.flush()
table = np.load("table.npy", mmap_mode="r")
model = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
chance = np.random.default_rng(0)
for batch in range(1000):
    rows = table[chance.integers(0, ROWS, 16)]  # slow
    loss = model.train_on_batch(rows, rows[:, :1])
    if batch % 50 == 0:
        print(batch, loss, flush=True)
""", "memory-thrash", around="little memory"),
    Case("quota", _ORDINARY, "processor-quota", around="quota", arguments=("20", "0")),
    Case("niced", _ORDINARY, "low-priority", around="busy processes", arguments=("20", "19")),
    Case("two-at-once", _ORDINARY, "busy-machine", around="the same again", arguments=("120", "0")),
    Case("healthy", r"""Nothing is wrong: an array in memory, a model that keeps the processor busy.
%keras
%classes
model.fit(x, y, batch_size=128, epochs=100, verbose=2)
""", ""),
)  # fmt: skip
