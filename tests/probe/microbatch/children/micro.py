"""Trains the same model with whole and with sliced batches in one process, under the probe.

    micro.py CASE...     one line of JSON: {case: [what the whole batch gave, what the slices gave]}

KERAS names the module (keras, tf_keras); the factor of the slices is that of the probe's settings.
"""

import json
import os
import sys
from importlib import import_module

import numpy as np

keras = import_module(os.environ.get("KERAS", "keras"))
layers = keras.layers
probe = sys.modules["_stallguard_probe"].probe
CONTEXT = probe.context
FACTOR = CONTEXT.settings.slices
ROWS = 100
random = np.random.RandomState(0)
x = random.rand(ROWS, 8).astype("float32")
y = (x[:, :1] * 2 + x[:, 1:2]).astype("float32")


def network(first=None, **options):
    """Return a compiled model whose loss is the mean square unless told otherwise."""
    model = keras.Sequential([
        layers.Input((8,)), first or layers.Dense(8, activation="tanh"), layers.Dense(1, dtype="float32"),
    ])  # fmt: skip
    model.compile(**{"optimizer": "adam", "loss": "mse", **options})
    return model


def fitted(model, *data, **options):
    """Train two epochs with a last batch of 10 rows."""
    if data and not hasattr(data[0], "element_spec") and "batch_size" not in options and len(data) > 1:
        options["batch_size"] = 30
    history = model.fit(*data, epochs=2, verbose=0, **options).history
    return model, {name: values[-1] for name, values in history.items()}


def dataset():
    """Return the rows as a tf.data pipeline."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).batch(30)


class Rows(getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence):
    """The rows as a dataset object."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return x[index * 30 : index * 30 + 30], y[index * 30 : index * 30 + 30]


def generator():
    while True:
        for start in range(0, ROWS, 30):
            yield x[start : start + 30], y[start : start + 30]


def sequences(mask):
    """Train a tagger of padded sequences; `mask`: padding leaves the loss."""
    tokens = np.sort(random_again().randint(0, 5, (ROWS, 6)))[:, ::-1].copy()
    # Without a recurrent layer, whose trace takes longer than all else: the mask passes through a dense one as well.
    embedding = layers.Embedding(5, 4, mask_zero=mask)
    model = keras.Sequential([layers.Input((6,)), embedding, layers.Dense(4, "tanh"), layers.Dense(1)])
    model.compile("adam", "mse")
    return fitted(model, tokens, random_again().rand(ROWS, 6, 1))


def random_again():
    return np.random.RandomState(1)


def two_outputs():
    one, other = layers.Input((8,), name="one"), layers.Input((8,), name="other")
    joined = layers.Concatenate()([layers.Dense(4)(one), layers.Dense(4)(other)])
    outputs = {"a": layers.Dense(1, name="a")(joined), "b": layers.Dense(1, name="b")(joined)}
    model = keras.Model({"one": one, "other": other}, outputs)
    model.compile("adam", {"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.3})
    return fitted(model, {"one": x, "other": x[::-1].copy()}, {"a": y, "b": 2 * y}, shuffle=False)


def images():
    model = keras.Sequential([
        layers.Input((8, 8, 3)), layers.Conv2D(4, 3),
        layers.GlobalAveragePooling2D(), layers.Dense(3, activation="softmax"),
    ])  # fmt: skip
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    pictures = random_again().rand(40, 8, 8, 3).astype("float32")
    labels = random_again().randint(0, 3, 40)
    return fitted(model, pictures, labels, batch_size=16, validation_split=0.2)


def unbuilt():
    model = keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    return fitted(model, x, y)


def own_step():
    """A train_step of the script's own that knows nothing of slices."""
    import tensorflow as tf

    class Own(keras.Model):
        def train_step(self, data):
            rows, wanted = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(rows, training=True) - wanted) ** 2)
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
            return {"loss": loss}

    start = layers.Input((8,))
    model = Own(start, layers.Dense(1)(start))
    model.compile("adam", "mse")
    return fitted(model, x, y)


def calls_super():
    class Own(keras.Model):
        def train_step(self, *data):
            return super().train_step(*data)

    start = layers.Input((8,))
    model = Own(start, layers.Dense(1)(start))
    model.compile("adam", "mse")
    return fitted(model, x, y)


def classes():
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model = network(loss=loss, metrics=["accuracy", keras.metrics.AUC(from_logits=True, name="auc")])
    return fitted(model, x, (y > 1.5).astype("int32"), class_weight={0: 1.0, 1: 5.0})


def cases():
    """Return {name: train it}."""
    return {
        "sgd": lambda: fitted(network(optimizer="sgd", metrics=["mae"]), x, y),
        "adam_tfdata": lambda: fitted(network(), dataset()),
        "dataset_object": lambda: fitted(network(), Rows(), shuffle=False),
        "generator": lambda: fitted(network(), generator(), steps_per_epoch=4),
        "class_weight": classes,
        "regularised": lambda: fitted(
            network(layers.Dense(8, activation="tanh", kernel_regularizer="l2", activity_regularizer="l2")), x, y
        ),
        "masked": lambda: sequences(mask=True),
        "embedding": lambda: sequences(mask=False),
        "two_outputs": two_outputs,
        "unbuilt": unbuilt,
        "images": images,
        "eager": lambda: fitted(network(run_eagerly=True), x, y),
        "compiled": lambda: fitted(network(jit_compile=True), x, y),
        "strides": lambda: fitted(network(steps_per_execution=2), x, y),
        "normalised": lambda: fitted(network(layers.BatchNormalization()), x, y),
        "dropped": lambda: fitted(network(layers.Dropout(0.5)), x, y),
        "own_step": own_step,
        "calls_super": calls_super,
    }


def measured(train, factor):
    """Return [loss and metrics, sums over the weights, updates] of one training."""
    CONTEXT.settings = CONTEXT.settings.replace(slices=factor)
    keras.utils.set_random_seed(0)
    model, logs = train()
    weights = np.concatenate([np.ravel(value) for value in model.get_weights()]).astype("float64")
    return {
        **{name: float(value) for name, value in logs.items()},
        "sum": float(np.abs(weights).sum()),
        "squares": float((weights**2).sum()),
        "updates": int(model.optimizer.iterations),
    }


if __name__ == "__main__":
    known = cases()
    print(json.dumps({name: [measured(known[name], 1), measured(known[name], FACTOR)] for name in sys.argv[1:]}))
