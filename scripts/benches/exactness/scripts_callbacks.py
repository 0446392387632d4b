"""Scripts of the bench `exact` that differ by their callbacks."""

from __future__ import annotations

from .shape import COMMENT, DEFAULTS, EPOCHS, HALVED, RATE, SEGMENTS, Edit, row

SHAPES = (
    # Callbacks
    row("callback_scheduler", SEGMENTS, DEFAULTS, edit=Edit(EPOCHS, "EPOCHS = 5", "EPOCHS = 7"), text=r"""
The example of Keras' documentation of LearningRateScheduler.
%rows
EPOCHS = 5
def scheduler(epoch, lr):
    if epoch < 1:
        return lr
    return float(lr * np.exp(-0.1))
%model keras.optimizers.SGD(0.1)
callbacks = [keras.callbacks.LearningRateScheduler(scheduler)]
%fit+ x, y, 20, epochs=EPOCHS
"""),
    row("callback_epoch_mean", SEGMENTS, text=r"""
A callback that gathers the losses of an epoch and acts on their spread.
%rows
class Spread(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.losses = []
    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
    def on_epoch_end(self, epoch, logs=None):
        self.model.optimizer.learning_rate = np.std(self.losses)
        self.seen = [*getattr(self, "seen", []), len(self.losses)]
%with callbacks Spread()
harness.show("seen", callbacks[0].seen)
"""),
    row("callback_moving_average", DEFAULTS, text=r"""
A moving average of the weights, kept in tf.Variables by a callback.
%rows, tensorflow
class Average(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.average = [tf.Variable(weight) for weight in self.model.get_weights()]
    def on_train_batch_end(self, batch, logs=None):
        for average, weight in zip(self.average, self.model.get_weights(), strict=True):
            average.assign(0.9 * average + 0.1 * weight)
%with callbacks Average()
harness.variables(callbacks[0].average, "average")
"""),
    row("callback_containers", SEGMENTS, text=r"""
A callback that keeps its state in a deque, a defaultdict and a Counter.
%rows
import collections
class Warm(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.last = collections.deque(maxlen=8)
        self.seen = collections.defaultdict(list)
        self.count = collections.Counter()
    def on_train_batch_end(self, batch, logs=None):
        self.last.append(logs["loss"])
        self.seen["loss"].append(logs["loss"])
        self.count["batches"] += 1
        self.model.optimizer.learning_rate = 0.1 * float(np.mean(self.last)) * min(1, self.count["batches"] / 10)
%with callbacks Warm()
harness.show("seen", [len(callbacks[0].seen["loss"]), callbacks[0].count["batches"], list(callbacks[0].last)])
"""),
    row("callback_object", edit=Edit(COMMENT), text=r"""
A callback that keeps its state in a dataclass and an enumeration.
%rows
import dataclasses
import enum
class Stage(enum.Enum):
    WARM = "warm"
    MAIN = "main"
@dataclasses.dataclass
class State:
    steps: int = 0
    stage: Stage = Stage.WARM
    losses: list = dataclasses.field(default_factory=list)
class Stages(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.state = State()
    def on_train_batch_end(self, batch, logs=None):
        self.state.steps += 1
        self.state.losses.append(float(logs["loss"]))
        if self.state.steps >= 15:
            self.state.stage = Stage.MAIN
            self.model.optimizer.learning_rate = 0.01
%with callbacks Stages()
state = callbacks[0].state
harness.show("state", [state.steps, state.stage.value, state.losses])
"""),
    row("callback_lambda", text=r"""
A LambdaCallback that closes over a local list, by which the learning rate is chosen.
%rows
def remembering(model):
    losses = []
    def ended(batch, logs):
        losses.append(logs["loss"])
        model.optimizer.learning_rate = 0.1 / (1 + len(losses) / 10)
    return keras.callbacks.LambdaCallback(on_train_batch_end=ended), losses
%model keras.optimizers.SGD(0.1)
remember, losses = remembering(model)
callbacks = [remember]
%fit+ x, y, 20, epochs=5
harness.show("losses", [float(loss) for loss in losses])
"""),
    row("callback_global", text=r"""A callback that counts in a global variable, for a warm-up.
%rows
step = 0
class WarmUp(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        global step
        step += 1
        self.model.optimizer.learning_rate = 0.1 * min(1.0, step / 20)
%with callbacks WarmUp()
harness.show("step", step)
"""),
    row("callback_warmup", HALVED, SEGMENTS, text=r"""A callback that warms up and decays by a counter of its own.
%rows
class WarmUp(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.steps, self.step = steps, 0
    def on_train_batch_begin(self, batch, logs=None):
        self.step += 1
        rate = self.step / self.steps if self.step < self.steps else 0.99 ** (self.step - self.steps)
        self.model.optimizer.learning_rate = 0.1 * rate
%with callbacks WarmUp(12)
harness.show("step", callbacks[0].step)
"""),
    row("callback_cycle", text=r"""One-cycle learning rates and momentum from lists that a callback works through.
%rows
class OneCycle(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.rates = list(np.concatenate([np.linspace(0.01, 0.2, steps // 2), np.linspace(0.2, 0.001, steps)]))
        self.used = []
    def on_train_batch_begin(self, batch, logs=None):
        self.used.append(self.rates.pop(0))
        self.model.optimizer.learning_rate = self.used[-1]
%with callbacks OneCycle(24)
harness.show("used", callbacks[0].used)
"""),
    row("callback_stops", at=(0, 2, 3), text=r"""A callback that ends the training in the middle of an epoch.
%rows
class Enough(keras.callbacks.Callback):
    def __init__(self, batches):
        super().__init__()
        self.left = batches
    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            self.model.stop_training = True
%with callbacks Enough(21)
harness.show("left", callbacks[0].left)
"""),
    row("callback_patience", edit=Edit(COMMENT), text=r"""
EarlyStopping that ends the training, and then the best weights.
%rows
%model keras.optimizers.SGD(0.1)
callbacks = [
    keras.callbacks.EarlyStopping(monitor="loss", patience=1, min_delta=0.05, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.1, cooldown=1),
]
%fit+ x, y, 20, epochs=9
harness.show("stopped", [callbacks[0].stopped_epoch, callbacks[0].best_epoch])
"""),
    row("callback_averages", text=r"""
Stochastic weight averaging: weights gathered from the third epoch on, set at the end.
%rows
class Averaging(keras.callbacks.Callback):
    def __init__(self, start):
        super().__init__()
        self.start, self.count, self.mean = start, 0, None
    def on_epoch_end(self, epoch, logs=None):
        if epoch >= self.start:
            weights = self.model.get_weights()
            self.count += 1
            if self.mean is None:
                self.mean = weights
            else:
                self.mean = [m + (w - m) / self.count for m, w in zip(self.mean, weights, strict=True)]
    def on_train_end(self, logs=None):
        self.model.set_weights(self.mean)
%with callbacks Averaging(1)
harness.show("count", callbacks[0].count)
"""),
    row("callback_best_three", text=r"""A callback that keeps the three best sets of weights in a heap.
%rows
import heapq
class BestThree(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.heap = []
    def on_epoch_end(self, epoch, logs=None):
        heapq.heappush(self.heap, (-float(logs["loss"]), epoch, self.model.get_weights()))
        del self.heap[3:]
%with callbacks BestThree()
harness.show("kept", sorted(entry[1] for entry in callbacks[0].heap))
harness.show("ensemble", [np.mean([entry[2][i] for entry in callbacks[0].heap], axis=0) for i in range(4)])
"""),
    row("callback_evaluates", text=r"""
A callback that evaluates and predicts at each epoch's end, and keeps what it found.
%rows
class Watch(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.found = []
    def on_epoch_end(self, epoch, logs=None):
        loss = self.model.evaluate(x[:40], y[:40], verbose=0)
        self.found.append((loss, float(self.model.predict(x[:8], verbose=0).mean())))
%with callbacks Watch()
harness.show("found", callbacks[0].found)
"""),
    row("callback_noise", text=r"""A callback that adds noise to the weights by a numpy Generator of its own.
%rows
class Noise(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.numbers = np.random.default_rng(5)
    def on_train_batch_end(self, batch, logs=None):
        weights = self.model.get_weights()
        self.model.set_weights([w + self.numbers.normal(0, 1e-3, w.shape).astype("float32") for w in weights])
%with callbacks Noise()
"""),
    row("callback_random", text=r"""A callback that draws the learning rate by a random.Random of its own.
%rows
import random
class Jitter(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.random = random.Random(3)
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.1 * self.random.uniform(0.5, 1.5)
%with callbacks Jitter()
harness.show("next", callbacks[0].random.random())
"""),
    row("callback_iterator", text=r"""A callback that takes its learning rates from itertools.
%rows
import itertools
class Cycle(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rates = itertools.cycle([0.1, 0.05, 0.02, 0.01])
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = next(self.rates)
%with callbacks Cycle()
harness.show("next", next(callbacks[0].rates))
"""),
    row("callback_log_append", SEGMENTS, DEFAULTS, text=r"""A callback that appends a line an epoch to a file.
%rows
class Log(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        with open("log.txt", "a") as log:
            log.write(f"{epoch} {float(logs['loss']).hex()}\n")
%with callbacks Log()
harness.file("log.txt")
"""),
    row("callback_log_batches", DEFAULTS, text=r"""A callback that appends a line a batch to a file.
%rows
class Log(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        with open("batches.txt", "a") as log:
            log.write(f"{batch} {float(logs['loss']).hex()}\n")
%with callbacks Log()
harness.file("batches.txt")
"""),
    row("callback_log_handle", SEGMENTS, text=r"""
A callback that opens its log when it is made and writes to the handle.
%rows
class Log(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.log = open("log.txt", "w", buffering=1)
    def on_epoch_end(self, epoch, logs=None):
        self.log.write(f"{epoch} {float(logs['loss']).hex()}\n")
    def on_train_end(self, logs=None):
        self.log.close()
%with callbacks Log()
harness.file("log.txt")
"""),
    row("callback_log_json", text=r"""A callback that writes all it has gathered to a file, anew at each epoch's end.
%rows
import json
class Record(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.rows = []
    def on_epoch_end(self, epoch, logs=None):
        self.rows.append({"epoch": epoch, **{key: float(value).hex() for key, value in logs.items()}})
        with open("history.json", "w") as out:
            json.dump(self.rows, out, indent=1)
%with callbacks Record()
harness.file("history.json")
"""),
    row("callback_csv", SEGMENTS, DEFAULTS, edit=Edit(RATE, "SGD(0.1)", "SGD(0.02)"), text=r"""
CSVLogger on a file of its own and on one that an earlier training began.
%rows
with open("all.csv", "w") as earlier:
    earlier.write("epoch,loss,val_loss\n0,9.0,9.0\n")
%model keras.optimizers.SGD(0.1)
callbacks = [keras.callbacks.CSVLogger("own.csv"), keras.callbacks.CSVLogger("all.csv", append=True)]
history = model.fit(
    x, y, 20, epochs=5, validation_split=0.2, callbacks=[*callbacks, harness.callback(keras)], verbose=0
)
%shown
harness.file("own.csv")
harness.file("all.csv")
"""),
    row("callback_checkpoints", DEFAULTS, text=r"""
ModelCheckpoint with a name an epoch, and one that saves each so many batches.
%rows
%model keras.optimizers.SGD(0.1)
callbacks = [
    keras.callbacks.ModelCheckpoint("epoch-{epoch:02d}.weights.h5", save_weights_only=True),
    keras.callbacks.ModelCheckpoint("best-{epoch}.keras", monitor="loss", save_best_only=True),
    keras.callbacks.ModelCheckpoint("latest.keras", save_freq=4),
]
%fit+ x, y, 20, epochs=5
import os
harness.show("names", sorted(name for name in os.listdir() if name.endswith((".h5", ".keras"))))
for name in ("best-1.keras", "best-4.keras", "latest.keras"):
    harness.saved(name, keras)
for epoch in range(1, 6):
    model.load_weights(f"epoch-{epoch:02d}.weights.h5")
    harness.show(f"epoch {epoch}", model.get_weights())
"""),
    row("callback_backup", SEGMENTS, text=r"""Keras' own BackupAndRestore.
%rows
%with callbacks keras.callbacks.BackupAndRestore("backup"), keras.callbacks.CSVLogger("log.csv", append=True)
harness.file("log.csv")
"""),
    row("callback_backup_batches", text=r"""Keras' own BackupAndRestore, each three batches.
%rows
%with callbacks keras.callbacks.BackupAndRestore("backup", save_freq=3)
"""),
    row("callback_swap_average", HALVED, text=r"""An optimizer with a moving average, swapped in by SwapEMAWeights.
%rows
%model keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9)
callbacks = [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]
history = model.fit(
    x, y, 20, epochs=5, validation_split=0.2, callbacks=[*callbacks, harness.callback(keras)], verbose=0
)
%shown
"""),
    row("callback_epoch_begins", text=r"""A callback that sets rate and weights as an epoch begins.
%rows
class Schedule(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.optimizer.learning_rate = [0.1, 0.1, 0.05, 0.02, 0.01][epoch]
        if epoch == 2:
            self.model.layers[0].kernel.assign(self.model.layers[0].kernel * 0.5)
%with callbacks Schedule()
"""),
    row("callback_nested", text=r"""A callback that owns another one and passes everything on.
%rows
class Quiet(keras.callbacks.Callback):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def set_model(self, model):
        super().set_model(model)
        self.inner.set_model(model)
    def on_train_begin(self, logs=None):
        self.inner.on_train_begin(logs)
    def on_epoch_end(self, epoch, logs=None):
        self.inner.on_epoch_end(epoch, {"loss": logs["val_loss"]})
%model keras.optimizers.SGD(0.1)
callbacks = [Quiet(keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.2, factor=0.5))]
history = model.fit(
    x, y, 20, epochs=6, validation_split=0.2, callbacks=[*callbacks, harness.callback(keras)], verbose=0
)
%shown
harness.show("inner", [callbacks[0].inner.wait, callbacks[0].inner.best])
"""),
    row("callback_predictions", text=r"""A callback that keeps the predictions of each epoch as arrays.
%rows
class Predictions(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.kept, self.total = [], np.zeros((10, 1), "float32")
    def on_epoch_end(self, epoch, logs=None):
        self.kept.append(self.model(x[:10]).numpy())
        self.total += self.kept[-1]
%with callbacks Predictions()
harness.show("kept", callbacks[0].kept)
harness.show("total", callbacks[0].total)
"""),
    row("callback_class_state", text=r"""A callback that keeps its state on the class, for all of its objects.
%rows
class Shared(keras.callbacks.Callback):
    losses = []
    rate = 0.1
    def on_train_batch_end(self, batch, logs=None):
        Shared.losses.append(float(logs["loss"]))
        Shared.rate *= 0.98
        self.model.optimizer.learning_rate = Shared.rate
%with callbacks Shared()
harness.show("losses", Shared.losses)
"""),
    row("callback_metric", text=r"""A metric object of a callback's own that is reset at each epoch's beginning.
%rows
class Steady(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.mean, self.means = keras.metrics.Mean(), []
    def on_epoch_begin(self, epoch, logs=None):
        self.mean.reset_state()
    def on_train_batch_end(self, batch, logs=None):
        self.mean.update_state(logs["loss"])
    def on_epoch_end(self, epoch, logs=None):
        self.means.append(float(self.mean.result()))
%with callbacks Steady()
harness.show("means", callbacks[0].means)
"""),
)  # fmt: skip
