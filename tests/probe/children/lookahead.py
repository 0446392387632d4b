"""Trains the same model twice under the probe in one process: as it is, and with a look at each batch before it.

    lookahead.py CASE...     one line of JSON: {case: [what was trained alone, what was trained with looks]}

KERAS names the module (keras, tf_keras).  Of each training: a digest of its weights, its history, how often its step
was traced, how it ended, and the sum of all that the model was given beside the sum of all that the looks saw.
"""

import hashlib
import json
import os
import re
import sys
from importlib import import_module

import numpy as np

keras = import_module(os.environ.get("KERAS", "keras"))
probe = sys.modules["_stallguard_probe"].probe
lookahead = import_module("_stallguard_probe.lookahead")
Sequence = getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence
x = np.random.RandomState(0).rand(70, 4).astype("float32")
y = x.sum(1, keepdims=True)
traces = []


@keras.utils.register_keras_serializable()
class Tally(keras.layers.Layer):
    """Adds up all that it is given in training, and counts how often it is traced."""

    def __init__(self):
        super().__init__()
        self.total = self.add_weight(shape=(), initializer="zeros", trainable=False, name="total")

    def call(self, inputs, training=False):
        """Return the inputs."""
        if training:
            traces.append(1)
            add = sys.modules.get("keras.ops", sys.modules.get("tensorflow"))
            total = add.sum(inputs) if hasattr(add, "sum") else add.reduce_sum(inputs)
            self.total.assign(self.total + total)
        return inputs


class Rows(Sequence):
    """The rows as a dataset object that shuffles itself at each epoch's end."""

    def __init__(self):
        super().__init__()
        self.order = np.arange(len(x))

    def __len__(self):
        return 7

    def __getitem__(self, index):
        rows = self.order[index * 10 : index * 10 + 10]
        return x[rows], y[rows]

    def on_epoch_end(self):
        np.random.shuffle(self.order)  # noqa: NPY002  the generator that a seed of Keras sets


class Look(keras.callbacks.Callback):
    """Has a look at the batches of each call of the train function."""

    def __init__(self, model):
        super().__init__()
        self.subject = model  # not `model`, whose reading has effects of its own in Keras 3 on JAX
        self.ahead = lookahead.Lookahead(probe.context)
        self.seen, self.calls, self.arranged = 0.0, 0, []

    def on_train_batch_begin(self, batch, logs=None):
        """Arrange the look."""
        self.arranged.append(self.ahead.arrange(self.subject, self.look))

    def look(self, batches):
        """Add up the inputs."""
        self.calls += 1
        self.seen += sum(float(np.sum(flat_sum(batch[0]))) for batch in batches)


def flat_sum(rows):
    """Return the sum of a batch's inputs, whatever they lie in."""
    if isinstance(rows, dict):
        return sum(flat_sum(part) for part in rows.values())
    if isinstance(rows, (tuple, list)):
        return sum(flat_sum(part) for part in rows)
    if hasattr(rows, "flat_values"):
        rows = rows.flat_values
    if hasattr(rows, "dense_shape"):
        rows = rows.values
    return np.sum(np.asarray(rows))


def network(dropped=0.2, **options):
    """Return a compiled model.  `dropped`: 0 where XLA draws anew each time, which Keras 2 lets it."""
    model = keras.Sequential([
        keras.layers.Input((4,)), Tally(), keras.layers.Dropout(dropped), keras.layers.Dense(1)
    ])  # fmt: skip
    model.compile(**{"optimizer": "adam", "loss": "mse", **options})
    return model


def pipeline(**options):
    """Return rows as a tf.data pipeline that shuffles anew each epoch."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(70, seed=3).batch(10, **options).prefetch(2)


def endless():
    """Yield batches without end."""
    while True:
        for start in range(0, 70, 10):
            yield x[start : start + 10], y[start : start + 10]


def generated(raises=False):
    """Return a pipeline of unknown length that a generator feeds; `raises`: not to its end."""
    import tensorflow as tf

    def batches():
        for start in range(0, 70, 10):
            if raises and start == 40:
                raise ValueError("the source is broken")
            yield x[start : start + 10], y[start : start + 10]

    kinds = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
    return tf.data.Dataset.from_generator(batches, output_signature=kinds)


class Nested(keras.Model):
    """Takes what a graph of layers does not: ragged and sparse rows in a nest of dicts and tuples."""

    def __init__(self):
        super().__init__()
        self.tally, self.dense = Tally(), keras.layers.Dense(1)

    def call(self, inputs, training=False):
        """Return one number a row."""
        import tensorflow as tf

        rows, (words, few) = inputs["rows"], inputs["more"]
        found = [rows, tf.reduce_sum(words, 1, keepdims=True), tf.sparse.to_dense(few)]
        return self.dense(self.tally(tf.ensure_shape(tf.concat(found, 1), (None, 9)), training=training))


def nested():
    """Train on dense, ragged and sparse parts in one structure; the last batch has fewer rows."""
    import tensorflow as tf

    words = tf.RaggedTensor.from_row_lengths(np.arange(105, dtype="float32"), [1, 2] * 35)
    few = tf.sparse.from_dense(np.where(x > 0.5, x, 0))
    rows = tf.data.Dataset.from_tensor_slices(({"rows": x, "more": (words, few)}, y)).shuffle(70, seed=1)
    model = Nested()
    model.compile("sgd", "mse")
    return model, (rows.batch(16),), {}


def cases():
    """Return {name: a function that returns (model, arguments of fit, its options)}."""
    arrays = {"batch_size": 10}
    return {
        "numpy": lambda: (network(), (x, y), arrays),
        "numpy_partial": lambda: (network(), (x, y), {"batch_size": 16}),
        "sample_weight": lambda: (network(), (x, y), {**arrays, "sample_weight": x[:, 0]}),
        "dataset_object": lambda: (network(), (Rows(),), {}),
        "python_generator": lambda: (network(), (endless(),), {"steps_per_epoch": 5}),
        "pipeline": lambda: (network(), (pipeline(),), {}),
        "known_shapes": lambda: (network(), (pipeline(drop_remainder=True),), {}),
        "repeated": lambda: (network(), (pipeline().repeat(),), {"steps_per_epoch": 5}),
        "too_short": lambda: (network(), (pipeline(),), {"steps_per_epoch": 5}),
        "generated": lambda: (network(), (generated(),), {}),
        "nested": nested,
        "eager": lambda: (network(run_eagerly=True), (x, y), arrays),
        "compiled": lambda: (network(0.0, jit_compile=True), (x, y), arrays),
        "strides": lambda: (network(steps_per_execution=3), (pipeline(),), {}),
        "strides_numpy": lambda: (network(steps_per_execution=3), (x, y), arrays),
        "strides_unknown": lambda: (network(steps_per_execution=3), (generated(),), {}),
        "strides_compiled": lambda: (network(0.0, steps_per_execution=3, jit_compile=True), (x, y), arrays),
        "raises": lambda: (network(), (generated(raises=True),), {}),
        "raises_in_strides": lambda: (
            network(steps_per_execution=3),
            (generated(raises=True),),
            {"steps_per_epoch": 7},
        ),
    }


def trained(make, watch):
    """Return what one training came to."""
    keras.utils.set_random_seed(7)
    traces.clear()
    model, data, options = make()
    look = Look(model)
    error, history = "", {}
    try:
        found = model.fit(*data, epochs=3, verbose=0, callbacks=[look] if watch else [], **options)
        history = {name: [float(value).hex() for value in values] for name, values in found.history.items()}
    except Exception as raised:
        error = type(raised).__name__
        if "steps_per_epoch" not in options:  # for several steps at once another operation draws
            error += ": " + re.sub(r"(?<=__inference_)\w+", "", str(raised))
    values = [np.asarray(value) for value in model.get_weights()]
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in values)).hexdigest()
    tally = next(layer for layer in model.layers if isinstance(layer, Tally))
    return {
        "weights": digest,
        "history": history,
        "traces": len(traces),
        "updates": int(model.optimizer.iterations),
        "error": error,
        "given": float(tally.total) if not error or hasattr(tally.total, "numpy") else 0.0,
        "seen": look.seen,
        "looks": look.calls,
        "arranged": all(look.arranged),
    }


if __name__ == "__main__":
    known = cases()
    print(json.dumps({name: [trained(known[name], False), trained(known[name], True)] for name in sys.argv[1:]}))
