"""What the bench `compat` trains, in each environment: Keras' public behaviour, written down as JSON.

    compat_child.py FILE [GROUP,...]

Runs with and without stallguard, and must write the same file to the bit: the order of all hooks with their logs, the
history, the weights, what callbacks write, and every exception with its type, text and the script's own lines.
"""

import json
import os
import re
import sys
import traceback
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
warnings.filterwarnings("error", message=".*stallguard.*")

import keras  # noqa: E402 - after the setting above
import numpy as np  # noqa: E402

try:
    import tensorflow as tf
except ImportError:
    tf = None

BACKEND = keras.backend.backend()
HERE = os.path.basename(__file__)
RESULTS = {}
GROUPS = {}


def group(function):
    GROUPS[function.__name__] = function
    return function


def plain(value):
    """Return a value as JSON has it, floats to the last bit."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, str, int)) or value is None:
        return value
    if hasattr(value, "detach"):
        value = value.detach()
    array = np.asarray(value)
    if array.ndim == 0 and array.dtype.kind == "f":
        return float(array).hex()
    return [str(array.dtype), list(array.shape), array.tobytes().hex()[:64], hash_of(array)]


def hash_of(array):
    """Return a number for the bytes of an array."""
    import zlib

    return zlib.crc32(np.ascontiguousarray(array).tobytes())


HOOKS = [
    f"on_{what}_{when}"
    for what in ("train", "test", "predict", "epoch", "train_batch", "test_batch", "predict_batch")
    for when in ("begin", "end")
]


def recorder(events, **more):
    """Return a callback that writes down each hook with its arguments.  `more`: hooks that do something else too."""

    def make(name):
        def hook(self, *words, **named):
            events.append([name, plain(words), plain(named)])
            if name in more:
                more[name](self, *words)

        return hook

    names = {name: make(name) for name in HOOKS}
    return type("Recorder", (keras.callbacks.Callback,), names)()


def data(rows=48):
    x = np.random.default_rng(7).normal(size=(rows, 6)).astype("float32")
    return x, (x.sum(1, keepdims=True) > 0).astype("float32")


def layers():
    dense = keras.layers.Dense
    return [dense(8, activation="relu"), keras.layers.Dropout(0.25), dense(1, activation="sigmoid")]


def model(cls=None, **compiled):
    """Return a compiled model, its weights made from a seed."""
    (keras.utils.set_random_seed if hasattr(keras.utils, "set_random_seed") else tf.random.set_seed)(11)
    inputs = keras.Input((6,))
    outputs = inputs
    for layer in layers():
        outputs = layer(outputs)
    made = (cls or keras.Model)(inputs, outputs)
    compiled.setdefault("loss", "binary_crossentropy")
    compiled.setdefault("metrics", ["accuracy"])
    made.compile(optimizer=keras.optimizers.Adam(0.01), **compiled)
    return made


def fitted(made, *words, **named):
    """Fit; return the hooks, the history and the weights."""
    events = []
    callbacks = [recorder(events), *named.pop("callbacks", ())]
    history = made.fit(*words, verbose=0, callbacks=callbacks, **named)
    return {
        "events": events,
        "history": plain(history.history),
        "epochs": plain(history.epoch),
        "params": plain({key: value for key, value in history.params.items() if key != "metrics"}),
        "weights": plain(made.get_weights()),
        "iterations": int(np.asarray(made.optimizer.iterations)),
        "again": type(history).__name__,
    }


# In the text of TensorFlow's error for a Python function that fails in a graph.
FRAME_OF_A_HOOK = re.compile(r'\n  File "[^"\n]*/stallguard/probe/(?:hooks|frameworks/)[^\n]*\n(?:    [^\n]*\n)*')
CHANGING = re.compile(r"0x[0-9a-f]+|__autograph_generated_file\w+|/tmp/\S+|(?<=__inference_train_function_)\d+")


def raised(do):
    """Return what `do` raises: its type, its text and the lines of this script in its traceback, chained ones too."""
    try:
        do()
    except BaseException as error:  # noqa: BLE001 - what a script sees of it is compared
        found, seen = [], error
        while seen is not None:
            frames = traceback.extract_tb(seen.__traceback__)
            own = [frame.lineno for frame in frames if os.path.basename(frame.filename) == HERE]
            text = CHANGING.sub("", FRAME_OF_A_HOOK.sub("", str(seen)))
            found.append([type(seen).__module__, type(seen).__name__, text, own])
            seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
        return found
    return "nothing"


@group
def hooks():
    """Fit with validation, evaluate, predict."""
    x, y = data()
    made = model()
    result = fitted(made, x, y, epochs=2, batch_size=16, validation_data=(x[:16], y[:16]))
    events = []
    result["evaluated"] = plain(made.evaluate(x, y, verbose=0, batch_size=16, callbacks=[recorder(events)]))
    result["predicted"] = plain(made.predict(x, verbose=0, batch_size=16, callbacks=[recorder(events)]))
    result["events"] += events
    return result


@group
def arrays():
    """Weights of samples and classes, a split for validation, an order of its own, a later first epoch."""
    x, y = data()
    weights = np.linspace(0.5, 1.5, len(x)).astype("float32")
    return [
        fitted(model(), x, y, epochs=3, initial_epoch=1, batch_size=16, validation_split=0.25, sample_weight=weights),
        fitted(model(), x, y, epochs=1, batch_size=10, shuffle=False, class_weight={0: 1.0, 1: 2.0}),
    ]


@group
def sequences():
    """Keras' own dataset class, and a generator."""
    x, y = data()
    base = keras.utils.PyDataset if hasattr(keras.utils, "PyDataset") else keras.utils.Sequence

    class Rows(base):
        ends = 0

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return x[index * 16 : index * 16 + 16], y[index * 16 : index * 16 + 16]

        def on_epoch_end(self):
            self.ends += 1

    def batches():
        while True:
            for at in range(0, 48, 16):
                yield x[at : at + 16], y[at : at + 16]

    rows = Rows()
    first = fitted(model(), rows, epochs=2)
    return [first, rows.ends, fitted(model(), batches(), epochs=2, steps_per_epoch=3)]


@group
def pipelines():
    """tf.data with a shuffle, and a DataLoader of torch."""
    x, y = data()
    found = []
    if tf is not None:
        rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(48, seed=3).batch(16)
        found.append(fitted(model(), rows, epochs=2, validation_data=rows))
        found.append(fitted(model(), rows.repeat(), epochs=2, steps_per_epoch=2))
    if BACKEND == "torch":
        import torch

        kept = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        found.append(fitted(model(), torch.utils.data.DataLoader(kept, batch_size=16), epochs=2))
    return found


@group
def steps():
    """Several steps an execution, compiled, eager."""
    x, y = data(96)
    ways = [{"steps_per_execution": 3}] if BACKEND != "torch" else []
    ways += [{"jit_compile": False}, {"run_eagerly": True}]
    ways += [{"jit_compile": True}] if BACKEND != "torch" else []
    return [fitted(model(**way), x, y, epochs=2, batch_size=16) for way in ways]


@group
def train_steps():
    """A model with a train_step of its own, and trainers that call batches themselves."""
    x, y = data()
    made = model(own_step(), metrics=None)
    found = [fitted(made, x, y, epochs=2, batch_size=16)]
    by_hand = model()
    logs = [plain(by_hand.train_on_batch(x[at : at + 16], y[at : at + 16])) for at in range(0, 48, 16)]
    logs.append(plain(by_hand.test_on_batch(x, y)))
    logs.append(plain(by_hand.predict_on_batch(x)))
    return [*found, logs, plain(by_hand.get_weights())]


def own_step():
    """Return a model class with a train_step of its own."""
    if BACKEND == "tensorflow":

        class Own(keras.Model):
            def train_step(self, batch):
                x, y = batch
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(keras.losses.binary_crossentropy(y, self(x, training=True)))
                variables = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
                return {"loss": loss, "norm": tf.linalg.global_norm(variables)}

    elif BACKEND == "torch":

        class Own(keras.Model):
            def train_step(self, batch):
                x, y = batch
                self.zero_grad()
                loss = keras.ops.mean(keras.losses.binary_crossentropy(y, self(x, training=True)))
                loss.backward()
                gradients = [weight.value.grad for weight in self.trainable_weights]
                import torch

                with torch.no_grad():
                    self.optimizer.apply(gradients, self.trainable_weights)
                return {"loss": loss}

    else:

        class Own(keras.Model):
            def train_step(self, state, batch):
                logs, state = super().train_step(state, batch)
                return {**logs, "twice": logs["loss"] * 2}, state

    return Own


@group
def distributed():
    """MirroredStrategy of two logical processors."""
    if BACKEND != "tensorflow":
        return "only TensorFlow has it"
    x, y = data()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        made = model()
    rows = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    return [strategy.num_replicas_in_sync, fitted(made, rows, epochs=2)]


@group
def callbacks():
    """Keras' own callbacks, and what they write."""
    x, y = data()
    rates = []
    kept = keras.callbacks
    more = [
        kept.CSVLogger("log.csv"),
        kept.EarlyStopping(monitor="loss", patience=0, min_delta=10.0, restore_best_weights=True),
        kept.LearningRateScheduler(lambda _epoch, rate: rates.append(float(rate).hex()) or rate * 0.5),
        kept.LambdaCallback(on_epoch_end=lambda _epoch, logs: rates.append(sorted(logs))),
        kept.TerminateOnNaN(),
        kept.ModelCheckpoint("at-{epoch}.weights.h5", save_weights_only=True),
    ]
    result = fitted(model(), x, y, epochs=4, batch_size=16, callbacks=more)
    files = sorted(name for name in os.listdir(".") if name.endswith(".h5"))
    with open("log.csv") as file:
        return [result, rates, files, file.read()]


@group
def stops():
    """A callback that ends the training, and one that reads and sets its model's state."""
    x, y = data()

    def stop(self, *_words):
        self.model.stop_training = True

    events = []
    history = model().fit(x, y, epochs=5, batch_size=16, verbose=0, callbacks=[recorder(events, on_epoch_end=stop)])
    return [events, plain(history.history)]


class Own(ValueError):
    """An error of the script's own."""


@group
def exceptions():
    """Errors out of hooks, data, losses and models, and what remains usable after them."""
    x, y = data()

    def fails(*_words):
        raise Own("on purpose")

    def interrupted(*_words):
        raise KeyboardInterrupt

    def leaves(*_words):
        sys.exit(9)

    def in_hook(name, how=fails):
        made = model()
        found = raised(
            lambda: made.fit(
                x, y, verbose=0, batch_size=16, callbacks=[recorder([], **{name: how})], validation_data=(x, y)
            )
        )
        return [found, fitted(made, x, y, epochs=1, batch_size=16)["weights"]]

    def rows():
        yield x[:16], y[:16]
        raise Own("in the data")

    def no_loss(_truth, _found):
        raise Own("in the loss")

    found = {name: in_hook(name) for name in HOOKS if not name.startswith("on_predict")}
    found["interrupted"] = in_hook("on_train_batch_end", interrupted)
    found["leaves"] = in_hook("on_epoch_end", leaves)
    found["data"] = raised(lambda: model().fit(rows(), verbose=0, steps_per_epoch=3))
    found["loss"] = raised(lambda: model(loss=no_loss).fit(x, y, verbose=0))
    found["shape"] = raised(lambda: model().fit(x[:, :2], y, verbose=0))
    found["rows"] = raised(lambda: model().fit(x, y[:3], verbose=0))
    found["words"] = raised(lambda: model().fit(x, y, epoch=3))
    return found


def main():
    if tf is not None and BACKEND == "tensorflow":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    names = sys.argv[2].split(",") if len(sys.argv) > 2 else list(GROUPS)
    for name in names:
        RESULTS[name] = GROUPS[name]()
    with open(sys.argv[1], "w") as file:
        json.dump(RESULTS, file)
    print(keras.__version__, BACKEND, "done")


if __name__ == "__main__":
    main()
