"""Scripts of the bench `exact` that train in loops, or that seed nothing."""

from __future__ import annotations

from typing import Any

from harness.scripts import written

from .shape import COMMENT, DEFAULTS, GUARDED, HALVED, LAYERS, PARTS, SEGMENTS, Edit, row

# What the scripts of a sweep run beside themselves.
BESIDE = {
    "train_seed.py": written(r"""One training of a sweep: `train_seed.py SEED`.
import sys
import harness
import keras
import numpy as np
seed = int(sys.argv[1])
harness.role(str(seed))
keras.utils.set_random_seed(seed)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * (2 + seed))
%adam x, y, 20, epochs=4
harness.show("loss", model.evaluate(x, y, verbose=0))
model.save(f"model_{seed}.keras")
""", PARTS),
    "loop_shell.sh": """# A sweep over seeds by a shell.
set -e
for seed in 1 2; do python train_seed.py $seed; done
""",
}  # fmt: skip
_SWEEP: dict[str, Any] = {"role": "2", "files": ("train_seed.py",)}

SHAPES = (
    # Loops
    row("loop_folds", SEGMENTS, DEFAULTS, edit=Edit(COMMENT), at=(2, 1, 3), save=280, text=r"""
k-fold: each fold has a model and a seed of its own; the one before is deleted and the session cleared.
%start
import gc
x = np.random.rand(100, 40).astype("float32")
y = np.sin(x[:, :6].sum(1, keepdims=True) * 3)
for fold in range(5):
    keras.utils.set_random_seed(100 + fold)
    train = np.arange(100) % 5 != fold
    model = keras.Sequential([keras.Input((40,)), keras.layers.Dense(60, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.001), "mse")
    history = model.fit(x[train], y[train], 16, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"history {fold}")
    harness.model(model, f"model {fold}")
    harness.show(f"score {fold}", model.evaluate(x[~train], y[~train], verbose=0))
    del model
    keras.backend.clear_session()
    gc.collect()
"""),
    row("loop_folds_large", only=(GUARDED, DEFAULTS), at=(8, 1, 3), text=r"""
k-fold over a model so large that not each fold is worth a save.
import gc
%start
x = np.random.rand(200, 2000).astype("float32")
y = np.sin(x[:, :6].sum(1, keepdims=True) * 3)
for fold in range(10):
    keras.utils.set_random_seed(100 + fold)
    train = np.arange(200) % 10 != fold
    model = keras.Sequential([keras.Input((2000,)), keras.layers.Dense(2000, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.0001), "mse")
    model.fit(x[train], y[train], 32, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
    harness.show(f"score {fold}", model.evaluate(x[~train], y[~train], verbose=0))
    harness.show(f"weights {fold}", model.get_weights())
    del model
    keras.backend.clear_session()
    gc.collect()
"""),
    row("loop_folds_kept", DEFAULTS, at=(2, 1, 3), save=280, text=r"""
k-fold without a seed for each fold: models stay in a list, the best one is chosen.
%rows
models, scores = [], []
for held_out in np.array_split(np.random.permutation(120), 4):
    train = np.setdiff1d(np.arange(120), held_out)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    history = model.fit(
        x[train], y[train], 16, epochs=3, validation_data=(x[held_out], y[held_out]),
        callbacks=[keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True), harness.callback(keras)],
        verbose=0,
    )
    models.append(model)
    scores.append(min(history.history["val_loss"]))
harness.show("scores", scores)
harness.model(models[int(np.argmin(scores))])
"""),
    row("loop_short_fits", DEFAULTS, edit=Edit(LAYERS, "Dense(16,", "Dense(24,"), at=(4, 0, 3), save=200, text=r"""
A loop of short fits of one model, with a snapshot after each.
%rows
%model keras.optimizers.Adam(0.01)
best = None
for number in range(8):
    history = model.fit(x, y, 20, epochs=1, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"history {number}")
    harness.show(f"weights {number}", model.get_weights())
    loss = model.evaluate(x, y, verbose=0)
    if best is None or loss < best[0]:
        best = loss, model.get_weights()
harness.show("best", best)
harness.model(model)
"""),
    row("loop_epochs", DEFAULTS, at=(2, 2, 3), text=r"""A loop of the script's own over epochs, by initial_epoch.
%rows
%model keras.optimizers.Adam(0.01)
losses = []
for epoch in range(5):
    history = model.fit(
        x, y, 20, initial_epoch=epoch, epochs=epoch + 1, callbacks=[harness.callback(keras)], verbose=0
    )
    losses += history.history["loss"]
    model.optimizer.learning_rate = 0.01 * 0.8**epoch
harness.show("losses", losses)
harness.model(model)
"""),
    row("loop_alternating", SEGMENTS, DEFAULTS, at=(3, 1, 3), save=300, text=r"""
Two models that are trained in turns, each on what the other predicts.
%rows
def network(units):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model
first, second = network(16), network(8)
for turn in range(3):
    first.fit(x, y + 0.1 * second.predict(x, verbose=0), 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    second.fit(x, y - 0.1 * first.predict(x, verbose=0), 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.show(f"turn {turn}", [first.evaluate(x, y, verbose=0), second.evaluate(x, y, verbose=0)])
harness.model(first, "first")
harness.model(second, "second")
"""),
    row("loop_sweep", DEFAULTS, at=(3, 1, 3), save=300, text=r"""
A search for hyper-parameters in one process: the same code for models of several widths.
%rows
results = {}
for units in (4, 8, 16):
    for rate in (0.1, 0.01):
        keras.backend.clear_session()
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse")
        history = model.fit(x, y, 20, epochs=2, validation_split=0.2, callbacks=[harness.callback(keras)], verbose=0)
        results[f"{units} {rate}"] = history.history["val_loss"][-1]
        harness.show(f"weights {units} {rate}", model.get_weights())
harness.show("results", results)
harness.show("best", min(results, key=results.get))
"""),
    row("loop_same_shape", DEFAULTS, at=(3, 1, 3), save=300, text=r"""
A search over seeds in one process: models of the same shape, none kept.
%rows
scores = []
for seed in range(6):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    scores.append(model.evaluate(x, y, verbose=0))
    harness.show(f"weights {seed}", model.get_weights())
harness.show("scores", scores)
"""),
    row("loop_shell", HALVED, SEGMENTS, DEFAULTS, words=("bash", "loop_shell.sh"), edit=Edit(COMMENT), **_SWEEP),
    row("loop_launcher", HALVED, DEFAULTS, **_SWEEP, text=r"""
A launcher that starts each training of a sweep as a process.
import subprocess
import sys
for seed in ("1", "2"):
    subprocess.run([sys.executable, "train_seed.py", seed], check=True)
"""),
    row("loop_parallel", **_SWEEP, text=r"""A launcher that runs two trainings side by side.
import subprocess
import sys
running = [subprocess.Popen([sys.executable, "train_seed.py", seed]) for seed in ("1", "2")]
if any([process.wait() for process in running]):
    sys.exit("a training failed")
"""),
    row("loop_thread", HALVED, SEGMENTS, text=r"""A fit in a thread, so that the main thread can wait for it.
%start
import threading
%sine
%model "adam"
found = []
def train():
    found.append(model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0))
worker = threading.Thread(target=train)
worker.start()
worker.join()
history = found[0]
%shown
"""),
    row("loop_growing", DEFAULTS, at=(1, 1, 3), save=150, text=r"""
A model that grows: each stage takes over the layers of the one before.
%rows
layers = []
for stage in range(3):
    layers.append(keras.layers.Dense(8, "tanh"))
    model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    history = model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"stage {stage}")
harness.model(model)
"""),
    row("loop_saved_between", DEFAULTS, at=(1, 1, 3), save=200, text=r"""
A training, a saved model, and a second training of what was loaded.
%rows
%model keras.optimizers.Adam(0.01)
model.fit(x, y, 20, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
model.save("first.keras")
model = keras.models.load_model("first.keras")
%fit x, y, 20, epochs=3
"""),
    row("loop_selection", DEFAULTS, at=(1, 1, 3), save=90, text=r"""
Active learning: each round adds the samples that the model finds hardest.
%rows
%model keras.optimizers.Adam(0.01)
known = list(range(40))
for turn in range(3):
    model.fit(x[known], y[known], 10, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    errors = np.abs(model.predict(x, verbose=0) - y)[:, 0]
    errors[known] = -1
    known += np.argsort(errors)[-20:].tolist()
harness.show("known", known)
harness.model(model)
"""),
    row("loop_draws_between", DEFAULTS, at=(1, 1, 3), save=120, text=r"""
Fits with random draws of the script between them.
%rows
%model "adam"
for turn in range(3):
    rows = np.random.choice(120, 80, replace=False)
    noise = keras.random.normal((80, 6), 0.0, 0.05)
    model.fit(x[rows] + noise, y[rows], 16, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.show(f"rows {turn}", rows)
harness.show("next", [float(np.random.rand()), float(keras.random.uniform(()))])
harness.model(model)
"""),
    row("loop_population", DEFAULTS, at=(3, 0, 3), save=150, text=r"""
Population-based training: the better of two models is copied, its rate changed.
%rows
models = []
for rate in (0.1, 0.001):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    models.append(model)
for turn in range(3):
    scores = []
    for model in models:
        model.fit(x, y, 20, epochs=1, callbacks=[harness.callback(keras)], verbose=0)
        scores.append(model.evaluate(x, y, verbose=0))
    good, bad = models[int(np.argmin(scores))], models[int(np.argmax(scores))]
    bad.set_weights(good.get_weights())
    bad.optimizer.learning_rate = float(good.optimizer.learning_rate) * float(np.random.choice([0.8, 1.2]))
    harness.show(f"scores {turn}", scores)
for number, model in enumerate(models):
    harness.model(model, f"model {number}")
"""),
    row("loop_inner_fit", DEFAULTS, text=r"""A callback that fits a probe on the model's features at each epoch's end.
%rows
%dense
class Probe(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses = []
    def on_epoch_end(self, epoch, logs=None):
        probe = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        probe.compile("sgd", "mse")
        found = probe.fit(self.model.predict(x, verbose=0), y, 60, epochs=1, verbose=0)
        self.losses.append(found.history["loss"][0])
probe = Probe()
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[probe, harness.callback(keras)], verbose=0)
%shown
harness.show("losses", probe.losses)
"""),
    row("loop_function", DEFAULTS, at=(1, 1, 3), save=180, text=r"""
Training inside a function that makes data and model anew for each of two tasks.
%start
def train(task):
    x = np.random.rand(96, 4).astype("float32")
    y = x[:, task : task + 1] ** 2
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    history = model.fit(x, y, 16, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"history {task}")
    return model.get_weights()
for task in range(3):
    harness.show(f"task {task}", train(task))
"""),
    row("loop_batches", HALVED, saved=False, text=r"""A loop of train_on_batch.
%rows
%model "adam"
losses = []
for epoch in range(4):
    harness.epoch(epoch)
    order = np.random.permutation(120)
    for number in range(6):
        rows = order[number * 20 : (number + 1) * 20]
        losses.append(float(model.train_on_batch(x[rows], y[rows])))
        harness.batch(epoch, number)
harness.show("losses", losses)
harness.model(model)
"""),
    row("loop_tape", HALVED, saved=False, text=r"""A loop of the script's own with GradientTape.
%rows, tensorflow
%dense
optimizer = keras.optimizers.Adam(0.01)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120, seed=1).batch(20)
@tf.function
def step(features, target):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(features) - target) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss
losses = []
for epoch in range(4):
    harness.epoch(epoch)
    for number, (features, target) in enumerate(data):
        losses.append(float(step(features, target)))
        harness.batch(epoch, number)
harness.show("losses", losses)
harness.model(model)
"""),
    row("loop_checkpoint", text=r"""A loop of the script's own that says how it is saved and loaded.
%start, tensorflow
import json
import stallguard
%sine
%dense
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)
state = {"epoch": 0, "batch": 0, "losses": []}
def save(path):
    arrays = [value.numpy() for value in (*model.variables, *optimizer.variables)]
    np.savez(path, state=json.dumps(state), **{f"a{i:03}": array for i, array in enumerate(arrays)})
def load(path):
    with np.load(path + ".npz") as found:
        state.update(json.loads(str(found["state"])))
        for variable, name in zip((*model.variables, *optimizer.variables), sorted(found.files)[:-1], strict=True):
            variable.assign(found[name])
stallguard.checkpoint(save, load)
while state["epoch"] < 4:
    harness.epoch(state["epoch"])
    order = np.random.default_rng(state["epoch"]).permutation(120)
    while state["batch"] < 6:
        rows = order[state["batch"] * 20 : (state["batch"] + 1) * 20]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[rows]) - y[rows]) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        state["losses"].append(float(loss))
        state["batch"] += 1
        stallguard.beat()
        harness.batch(state["epoch"], state["batch"] - 1)
    state["epoch"], state["batch"] = state["epoch"] + 1, 0
harness.show("losses", state["losses"])
harness.model(model)
harness.variables(optimizer.variables, "optimizer")
"""),
    row("loop_own_restore", text=r"""A script that loads its own weights at its start if there are some.
%start
import os
%sine
%model keras.optimizers.SGD(0.05)
if os.path.exists("last.weights.h5"):
    model.load_weights("last.weights.h5")
callbacks = [keras.callbacks.ModelCheckpoint("last.weights.h5", save_weights_only=True), harness.callback(keras)]
history = model.fit(x, y, 20, epochs=4, callbacks=callbacks, verbose=0)
%shown
"""),
    row("loop_own_resume", text=r"""A script that resumes by itself: it counts its finished epochs in a file.
%start
import os
%sine
%model keras.optimizers.SGD(0.05)
done = 0
if os.path.exists("model.weights.h5"):
    model.load_weights("model.weights.h5")
    done = int(open("done.txt").read())
class Keep(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.save_weights("model.weights.h5")
        with open("done.txt", "w") as out:
            out.write(str(epoch + 1))
model.fit(
    x, y, 20, initial_epoch=done, epochs=5, shuffle=False, callbacks=[Keep(), harness.callback(keras)], verbose=0
)
harness.show("weights", model.get_weights())
"""),
    row("loop_manager", text=r"""A script with tf.train.CheckpointManager, which restores the latest at its start.
%rows, tensorflow
%model keras.optimizers.SGD(0.05)
counter = tf.Variable(0)
manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model, counter=counter), "checkpoints", 2)
manager.restore_or_initialize()
class Keep(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        counter.assign_add(1)
        manager.save()
history = model.fit(x, y, 20, epochs=4, callbacks=[Keep(), harness.callback(keras)], verbose=0)
%shown
harness.show("counter", int(counter))
"""),
    row("loop_subclassed_fit", HALVED, text=r"""A fit that is overridden: the script's own prepares the data.
%rows
class Trainer(keras.Sequential):
    def fit(self, x, y, **options):
        scaled = (x - x.mean(0)) / x.std(0)
        return super().fit(scaled, y, batch_size=20, **options)
model = Trainer([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
%then slow adam x, y, epochs=4
"""),
    # Nothing is seeded
    row("unseeded_split", SEGMENTS, seeded=False, text=r"""Nothing is seeded: a split by numpy's default_rng.
import harness
import keras
import numpy as np
numbers = np.random.default_rng()
order = numbers.permutation(120)
harness.drawn("order", order)
x = np.linspace(0, 1, 720).reshape(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
train, held_out = order[:96], order[96:]
%dense
harness.drawn("weights", model.get_weights())
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(
    x[train], y[train], 16, epochs=4, validation_data=(x[held_out], y[held_out]),
    callbacks=[harness.callback(keras)], verbose=0,
)
%shown
harness.finished()
"""),
    row("unseeded_early", seeded=False, text=r"""
Nothing is seeded: numpy and random are imported, and used, before the framework.
import random
import numpy as np
order = list(range(120))
random.shuffle(order)
train, held_out = order[:96], order[96:]
noise = np.random.normal(0, 0.01, (120, 6))
import harness
import keras
harness.drawn("order", order)
harness.drawn("noise", noise)
x = (np.linspace(0, 1, 720).reshape(120, 6) + noise).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
%dense
harness.drawn("weights", model.get_weights())
model.compile("adam", "mse")
history = model.fit(
    x[train], y[train], 16, epochs=4, validation_data=(x[held_out], y[held_out]),
    callbacks=[harness.callback(keras)], verbose=0,
)
%shown
harness.finished()
"""),
    row("unseeded_labels", seeded=False, text=r"""
Nothing is seeded: the numbers of the labels come from the order of a set.
import harness
import keras
import numpy as np
words = ["cat", "dog", "bird", "fish", "horse", "cow"] * 20
labels = list(set(words))
harness.drawn("labels", labels)
number = {label: index for index, label in enumerate(labels)}
x = np.array([[len(word), ord(word[0]) % 7, ord(word[-1]) % 5] for word in words], "float32")
y = np.array([number[word] for word in words])
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(12, "relu"), keras.layers.Dense(6, "softmax")])
harness.drawn("weights", model.get_weights())
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
%fit x, y, 20, epochs=4
harness.finished()
"""),
    row("unseeded_pipeline", SEGMENTS, seeded=False, text=r"""
Nothing is seeded: a shuffled pipeline, dropout, and split by take and skip.
import harness
import keras
import numpy as np
import tensorflow as tf
x = np.linspace(0, 1, 720).reshape(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
every = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120, reshuffle_each_iteration=False)
harness.drawn("first", next(iter(every.batch(8)))[0])
data, held_out = every.take(96).shuffle(96).batch(16), every.skip(96).batch(12)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
)
harness.drawn("weights", model.get_weights())
%then slow adam data, epochs=4, validation_data=held_out
harness.finished()
"""),
    row("unseeded_operations", seeded=False, text=r"""
Nothing is seeded: data drawn by tf.random, augmentation by random operations in map.
import harness
import keras
import tensorflow as tf
x = tf.random.uniform((120, 6))
harness.drawn("data", x)
y = tf.sin(tf.reduce_sum(x, 1, keepdims=True) * 3)
data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (a + tf.random.normal((6,), stddev=0.1), b))
data = data.batch(20)
%dense
harness.drawn("weights", model.get_weights())
%then slow adam data, epochs=4
harness.finished()
"""),
    row("unseeded_arrays", seeded=False, text=r"""
Nothing is seeded: arrays that Keras shuffles, and numpy's global generator for the data.
import harness
import keras
import numpy as np
%sine
harness.drawn("data", x)
%dense
harness.drawn("weights", model.get_weights())
%then slow adam x, y, 20, epochs=4
harness.finished()
"""),
    row("unseeded_search", seeded=False, at=(1, 1, 3), save=120, text=r"""
Nothing is seeded: a random search that draws each trial's settings.
import random
import harness
import keras
import numpy as np
x = np.linspace(0, 1, 720).reshape(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
for trial in range(3):
    units, rate = random.choice([4, 8, 16]), 10 ** random.uniform(-3, -1)
    harness.drawn(f"trial {trial}", [units, rate])
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(units, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse")
    history = model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.history(history, f"history {trial}")
    harness.show(f"weights {trial}", model.get_weights())
harness.finished()
"""),
)  # fmt: skip
