"""Trainings of slices.py that need more than a loss or a layer: their batches, steps and state."""

import numpy as np
from slice_shapes import BACKEND, Counts, Pairs, dense, fitted, keras, layers, masked_mean, network, total, x, y

if BACKEND == "tensorflow":
    import tensorflow as tf

# ---- batches ------------------------------------------------------------------------------------------------------


def fixed():
    """Batches of 16, prescribed by the model."""
    start = layers.Input((6,), batch_size=16)
    inner = layers.Reshape((6,))(start)
    inner = Pairs()(inner)
    model = keras.Model(start, layers.Dense(1)(inner))
    model.compile("sgd", "mse")
    return fitted(model, pipeline(drop=True))


def pipeline(drop=False, change=None):
    """Return the arrays as a tf.data pipeline."""
    found = tf.data.Dataset.from_tensor_slices((x, y)).batch(16, drop_remainder=drop)
    return found.map(change) if change else found


class Anchored(keras.Model):
    """Takes a table of anchors beside each batch."""

    def __init__(self, *args):
        super().__init__(*args)
        self.dense = layers.Dense(6)

    def call(self, inputs):
        return tf.reduce_mean(tf.matmul(self.dense(inputs["image"]), inputs["anchors"], transpose_b=True), 1, True)


def anchors(table, change=None):
    model = Anchored()
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return fitted(model, pipeline(change=lambda a, b: ({"anchors": table(a), "image": a}, b)))


def growing_table(batch):
    """Sixteen anchors in the first batch, as many as it has rows; ten in the others."""
    first = tf.reduce_all(batch[0] == x[0])
    return tf.cond(first, lambda: tf.constant(x[:16]), lambda: tf.constant(x[:10]))


def temperature():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, inputs):
            return self.dense(inputs["rows"]) * inputs["temperature"]

    model = Model()
    model.compile("sgd", "mse")
    return fitted(model, pipeline(change=lambda a, b: ({"rows": a, "temperature": tf.constant(2.0)}, b)))


def graph_of_nodes():
    """A batch is a graph: nodes, edges between them, and one target a node."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, inputs):
            nodes, edges = inputs
            found = tf.gather(nodes, edges[:, 0])
            return self.dense(tf.math.unsorted_segment_sum(found, edges[:, 1], tf.shape(nodes)[0]))

    model = Model()
    model.compile(keras.optimizers.SGD(0.001), "mse")
    edges = np.stack([np.arange(20) % 16, np.arange(20) * 7 % 16], 1).astype("int32")
    return fitted(model, pipeline(drop=True, change=lambda a, b: ((a, tf.constant(edges)), b)))


def edges_by_chance():
    """The same with as many edges as nodes: only the comparison can see it."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, inputs):
            nodes, edges = inputs
            return self.dense(nodes + tf.gather(nodes, edges[:, 0] % tf.shape(nodes)[0]))

    model = Model()
    model.compile("sgd", "mse")
    edges = np.stack([np.arange(16)[::-1], np.arange(16)], 1).astype("int32")
    return fitted(model, pipeline(drop=True, change=lambda a, b: ((a, tf.constant(edges)), b)))


def mixed_parts():
    """Dense, ragged and sparse parts in one batch."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, inputs):
            words, few = inputs["more"]
            found = [inputs["rows"], tf.reduce_sum(words, 1, True), tf.sparse.to_dense(few)]
            return self.dense(tf.ensure_shape(tf.concat(found, 1), (None, 13)))

    model = Model()
    model.compile("sgd", "mse")
    words = tf.RaggedTensor.from_row_lengths(np.arange(72, dtype="float32") / 72, [1, 2] * 24)
    few = tf.sparse.from_dense(np.where(x > 0.5, x, 0))
    found = tf.data.Dataset.from_tensor_slices(({"rows": x, "more": (words, few)}, y))
    return fitted(model, found.batch(16))


def mirrored():
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        model = network(dense())
    return fitted(model, x, y)


def sorted_targets():
    """A script's own mask, with padding in the last batches only: the first rows do not show it."""
    targets = y.copy()
    targets[20:] = np.where(x[20:, :1] > 0.5, targets[20:], 0)
    return fitted(network(dense(), loss=masked_mean), x, targets)


def masked_outputs():
    """Two losses, each divided by another number of tokens that are no padding."""
    tokens = np.sort(np.random.RandomState(1).randint(0, 5, (48, 6)))[:, ::-1].copy()
    start = layers.Input((6,))
    inner = layers.Embedding(5, 4, mask_zero=True)(start)
    outputs = {
        "a": layers.Dense(1, name="a")(inner),
        "b": layers.Dense(1, name="b")(layers.Dense(4, "tanh")(inner)),  # the mask passes through
    }
    model = keras.Model(start, outputs)
    model.compile("sgd", {"a": "mse", "b": "mae"})
    targets = np.random.RandomState(2).rand(48, 6, 1).astype("float32")
    return fitted(model, tokens, {"a": targets, "b": targets})


# ---- state that a comparison must leave alone ----------------------------------------------------------------------


class Busy(keras.Model):
    """Changes all that it can reach in a step, and has a loss that slices do not suit."""

    def __init__(self, loss):
        super().__init__()
        self.inner = [
            dense(),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.GaussianNoise(0.1),
            layers.Dense(1),
        ]
        self.counts, self.steps, self.seen, self.memo = Counts(), 0, [], {}
        self.chosen_loss = loss
        if BACKEND == "tensorflow":
            self.own = tf.Variable(0.0, trainable=False)
            self.generator = tf.random.Generator.from_seed(3)

    def call(self, inputs, training=False):
        self.steps += 1
        self.seen.append(self.steps)
        self.memo["last"] = self.steps
        found = self.counts(inputs)
        for layer in self.inner:
            found = layer(found)
        if BACKEND == "tensorflow" and training:
            self.own.assign_add(tf.reduce_sum(self.generator.normal(())))
        return found

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return self.chosen_loss(y, y_pred)


def busy(**options):
    model = Busy(total)
    if options:
        model(x[:2])  # else its first trace counts too
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), metrics=["mae"], **options)
    model, history = fitted(model, x, y)
    history["own"] = [float(model.own) if BACKEND == "tensorflow" else 0.0]
    history["generator"] = [int(sum(model.generator.state.numpy() % 1000)) if BACKEND == "tensorflow" else 0]
    history["count"] = [float(model.counts.count)]
    history["python"] = [model.steps, len(model.seen), model.memo["last"]] if options.get("run_eagerly") else []
    return model, history


def own_step(loss, compiled=False, reads=False, **options):
    """A train_step of the script's own that prepares a batch and leaves the rest to Keras."""

    class Prepares(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.last = dense(), layers.Dense(1)
            self.steps, self.more = 0, iter(range(1000)) if reads else None
            self.own = tf.Variable(0.0, trainable=False)

        def call(self, inputs):
            return self.last(self.inner(inputs))

        def train_step(self, data):
            self.steps += 1
            self.own.assign_add(1.0)
            rows, wanted = data
            return super().train_step((rows + 0.01 * float(next(self.more) if reads else 1), wanted))

    if compiled:
        Prepares.train_step = tf.function(Prepares.train_step)
    model = Prepares()
    model(x[:2])
    model.compile(keras.optimizers.SGD(0.005), loss, **options)
    model, history = fitted(model, x, y)
    history["own"] = [float(model.own)]
    history["steps"] = [model.steps] if options else []
    return model, history


def second_fit():
    """A model that is compiled anew with a loss that slices do not suit."""
    model, _ = fitted(network(dense()), x, y)
    model.compile(keras.optimizers.SGD(0.005), total)
    return fitted(model, x, y)


def second_data():
    """A fit whose data no slice suits after one whose data are cut."""
    model = Anchored()
    model.compile(keras.optimizers.SGD(0.01), "mse")
    fitted(model, pipeline(change=lambda a, b: ({"anchors": a, "image": a}, b)))
    return fitted(model, pipeline(change=lambda a, b: ({"anchors": tf.constant(x[:20]), "image": a}, b)))


def own_loop():
    """A script that calls the step itself."""
    model = network(dense())
    step = tf.function(model.train_step)
    for start in range(0, 48, 16):
        logs = step((tf.constant(x[start : start + 16]), tf.constant(y[start : start + 16])))
    return model, {name: [float(value)] for name, value in logs.items()}


def single_batches(loss):
    model = network(dense(), loss=loss)
    found = [float(np.mean(model.train_on_batch(x[i : i + 16], y[i : i + 16]))) for i in range(0, 48, 16)]
    return model, {"loss": found}


def sizes(count, batch):
    return lambda: fitted(network(dense()), x[:count], y[:count], batch_size=batch)


def optimized(make):
    """Return a training with an optimizer, two steps of which show its state."""
    return lambda: fitted(network(dense(), optimizer=make()), x, y)


def half(policy):
    def train():
        set_policy = keras.mixed_precision.set_global_policy
        set_policy(policy)
        try:
            model = keras.Sequential([layers.Input((6,)), dense(), dense(), layers.Dense(1, dtype="float32")])
        finally:
            set_policy("float32")
        model.compile("sgd", "mse")
        return fitted(model, x, y)

    return train


def attention():
    start = layers.Input((3, 2))
    inner = layers.MultiHeadAttention(1, 2, use_bias=False, dropout=0.1)(start, start)
    model = keras.Model(start, layers.Dense(1)(layers.Flatten()(inner)))
    model.compile("sgd", "mse")
    return model
