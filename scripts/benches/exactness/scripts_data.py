"""Scripts of the bench `exact` that differ by their data: arrays, pipelines, generators and dataset objects."""

from __future__ import annotations

from .shape import COMMENT, DEFAULTS, HALVED, LAYERS, OPTIMIZER, RATE, SEGMENTS, Edit, row

SHAPES = (
    # Arrays
    row("arrays_callbacks", HALVED, SEGMENTS, DEFAULTS, edit=Edit(COMMENT), text=r"""
Arrays, a validation split, and the callbacks that most scripts have.
%start
LEARNING_RATE = 0.01
EPOCHS = 6
UNITS = 16
x = np.random.randn(150, 8).astype("float32")
y = (x[:, :1] ** 2).sum(1, keepdims=True)
model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(UNITS, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
)
model.compile(keras.optimizers.Adam(LEARNING_RATE), "mse", metrics=["mae"])
callbacks = [
    keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.05),
    keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True), keras.callbacks.CSVLogger("log.csv"),
    keras.callbacks.TerminateOnNaN(), harness.callback(keras),
]
history = model.fit(x, y, 16, epochs=EPOCHS, validation_split=0.2, callbacks=callbacks, verbose=0)
%shown
harness.file("log.csv")
harness.saved("best.keras", keras)
"""),
    row("arrays_validation", HALVED, edit=Edit(LAYERS, "Dense(12,", "Dense(20,"), text=r"""
Arrays with validation data of their own, every second epoch, and class weights.
%start
x = np.random.rand(130, 6).astype("float32")
y = np.digitize(x.sum(1), [2.5, 3.5])
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(12, "relu"), keras.layers.Dense(3, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x[:100], y[:100], 16, epochs=5, validation_data=(x[100:], y[100:]), validation_freq=2,
    class_weight={0: 1.0, 1: 0.5, 2: 3.0}, callbacks=[harness.callback(keras)], verbose=0,
)
%shown
print("accuracy", model.evaluate(x[100:], y[100:], verbose=0)[1])
"""),
    row("arrays_weights", HALVED, edit=Edit(RATE, "LEARNING_RATE = 0.02", "LEARNING_RATE = 0.005"), text=r"""
Arrays with sample weights and a last batch that is smaller than the others.
%start
LEARNING_RATE = 0.02
x = np.random.rand(107, 6).astype("float32")
y = (x.sum(1) > 3).astype("float32")
weights = np.random.rand(107)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1, "sigmoid")])
model.compile(keras.optimizers.RMSprop(LEARNING_RATE), "binary_crossentropy", weighted_metrics=["accuracy", "auc"])
%fit x, y, 16, epochs=4, sample_weight=weights
"""),
    row("arrays_dictionaries", HALVED, text=r"""
Dictionaries of arrays for a functional model with two inputs and two outputs.
%start
numbers, words = np.random.rand(96, 4).astype("float32"), np.random.randint(0, 20, (96, 5))
targets = {"price": numbers.sum(1, keepdims=True), "kind": words[:, 0] % 3}
first, second = keras.Input((4,), name="numbers"), keras.Input((5,), name="words", dtype="int32")
text = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(20, 6)(second))
both = keras.layers.Concatenate()([keras.layers.Dense(8, "relu")(first), text])
price, kind = keras.layers.Dense(1, name="price")(both), keras.layers.Dense(3, "softmax", name="kind")(both)
model = keras.Model([first, second], {"price": price, "kind": kind})
model.compile(
    "adam", {"price": "mse", "kind": "sparse_categorical_crossentropy"},
    loss_weights={"price": 0.5, "kind": 1.0}, metrics={"kind": "accuracy"},
)
history = model.fit(
    {"numbers": numbers, "words": words}, targets, 16, epochs=4, callbacks=[harness.callback(keras)], verbose=0
)
%shown
"""),
    row("arrays_order", HALVED, edit=Edit(OPTIMIZER, "SGD(rate, momentum=0.9, nesterov=True)", "RMSprop(rate)"),
    text=r"""
Arrays without a shuffle, a regularised model, and a learning rate that decays in the optimizer.
%start
EPOCHS = 4
%sine
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh", kernel_regularizer="l2"), keras.layers.Dense(1)]
)
rate = keras.optimizers.schedules.ExponentialDecay(0.05, 10, 0.9)
model.compile(keras.optimizers.SGD(rate, momentum=0.9, nesterov=True), "mse")
%fit x, y, 16, epochs=EPOCHS, shuffle=False
"""),
    row("arrays_normalised", HALVED, SEGMENTS, text=r"""
A Normalization layer that is adapted first, and metrics with state of their own.
%rows
normalise = keras.layers.Normalization()
normalise.adapt(x)
model = keras.Sequential([keras.Input((6,)), normalise, keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(
    keras.optimizers.Nadam(0.01), keras.losses.Huber(),
    metrics=[keras.metrics.RootMeanSquaredError(), keras.metrics.R2Score(), keras.metrics.MeanAbsoluteError()],
)
%fit x, y, 16, epochs=4, validation_split=0.25
"""),
    # Pipelines
    row("pipeline_seeded", HALVED, SEGMENTS, edit=Edit(RATE, "Adam(0.01)", "Adam(0.002)"), text=r"""
A pipeline whose shuffle has a seed, mapped in parallel and prefetched.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64, seed=11).map(lambda a, b: (a * 2, b), tf.data.AUTOTUNE)
data = data.batch(16).prefetch(tf.data.AUTOTUNE)
%adam data, epochs=4
"""),
    row("pipeline_global", SEGMENTS, edit=Edit(COMMENT), text=r"""
A pipeline whose shuffle has no seed, under the global one.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_fixed", text=r"""A pipeline that is shuffled once, in the same order for all epochs.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120, seed=3, reshuffle_each_iteration=False).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_shuffle_cache", SEGMENTS, text=r"""
A pipeline that is shuffled and then cached: the first order stays.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120).cache().batch(16)
%adam data, epochs=4
"""),
    row("pipeline_cache_shuffle", text=r"""A pipeline that is cached in memory and then shuffled anew in each epoch.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda a, b: (a + tf.random.normal((6,), stddev=0.1), b))
data = data.cache().shuffle(50).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_cache_file", DEFAULTS, text=r"""A pipeline that is shuffled and cached in a file.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120).cache("cache").batch(16)
%adam data, epochs=4
"""),
    row("pipeline_shards", text=r"""Text files, their list shuffled, read by interleave.
%rows, tensorflow
for shard in range(4):
    np.savetxt(f"part-{shard}.csv", np.hstack([x, y])[shard::4], delimiter=",")
def parse(line):
    row = tf.io.decode_csv(line, [0.0] * 7)
    return tf.stack(row[:6]), tf.stack(row[6:])
data = tf.data.Dataset.list_files("part-*.csv", shuffle=True)
data = data.interleave(tf.data.TextLineDataset, cycle_length=2, num_parallel_calls=2).map(parse).shuffle(30).batch(16)
%model "adam"
%fit data, epochs=4
"""),
    row("pipeline_records", text=r"""TFRecord files, read in a fixed order and shuffled.
%rows, tensorflow
with tf.io.TFRecordWriter("data.tfrecord") as writer:
    for row, target in zip(x, y, strict=True):
        feature = {
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=row)),
            "y": tf.train.Feature(float_list=tf.train.FloatList(value=target)),
        }
        writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
layout = {"x": tf.io.FixedLenFeature((6,), tf.float32), "y": tf.io.FixedLenFeature((1,), tf.float32)}
def parse(record):
    row = tf.io.parse_single_example(record, layout)
    return row["x"], row["y"]
data = tf.data.TFRecordDataset(["data.tfrecord"]).map(parse).shuffle(64, seed=2).batch(16, drop_remainder=True)
%model "adam"
%fit data, epochs=4
"""),
    row("pipeline_zip", text=r"""Two pipelines, each shuffled by a seed of its own, zipped.
%rows, tensorflow
clean = tf.data.Dataset.from_tensor_slices(x).shuffle(120, seed=5)
targets = tf.data.Dataset.from_tensor_slices(y).shuffle(120, seed=5)
data = tf.data.Dataset.zip((clean, targets)).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_filter", SEGMENTS, text=r"""A pipeline of unknown length.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda a, b: a[0] > 0.2).shuffle(40).batch(12)
%adam data, epochs=4
"""),
    row("pipeline_repeat", HALVED, edit=Edit(OPTIMIZER, "Adam(0.01)", "RMSprop(0.01)"), text=r"""
A pipeline without an end, and steps_per_epoch.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64).repeat().batch(16)
%adam data, epochs=4, steps_per_epoch=6
"""),
    row("pipeline_split", text=r"""Training and validation data taken from one shuffled dataset.
%rows, tensorflow
every = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120)
data, held_out = every.skip(24).batch(16), every.take(24).batch(12)
%adam data, epochs=4, validation_data=held_out
"""),
    row("pipeline_validation_steps", SEGMENTS, text=r"""Shuffled validation data of which each epoch sees a part.
%rows, tensorflow
data = tf.data.Dataset.from_tensor_slices((x[:90], y[:90])).batch(15)
held_out = tf.data.Dataset.from_tensor_slices((x[90:], y[90:])).shuffle(30).repeat().batch(5)
%model keras.optimizers.Adam(0.01)
history = model.fit(
    data, epochs=5, validation_data=held_out, validation_steps=2, callbacks=[harness.callback(keras)], verbose=0
)
%shown
"""),
    row("pipeline_stateless", text=r"""Augmentation by stateless random operations with a counter.
%rows, tensorflow
def augment(pair, seed):
    a, b = pair
    return a + tf.random.stateless_normal((6,), tf.stack([seed, seed + 1]), stddev=0.1), b
rows = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60, seed=1)
data = tf.data.Dataset.zip((rows, tf.data.Dataset.counter())).map(augment).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_generator_object", SEGMENTS, text=r"""Augmentation by a tf.random.Generator.
%rows, tensorflow
numbers = tf.random.Generator.from_seed(3)
def augment(a, b):
    return a + numbers.normal((6,), stddev=0.1), b
data = tf.data.Dataset.from_tensor_slices((x, y)).map(augment).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_layers", text=r"""Augmentation of images by Keras' random layers, in map.
%rows, tensorflow
images, labels = np.random.rand(96, 8, 8, 3).astype("float32"), np.random.randint(0, 3, 96)
augment = keras.Sequential([keras.layers.RandomFlip("horizontal"), keras.layers.RandomRotation(0.1)])
data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(48).batch(16)
data = data.map(lambda a, b: (augment(a, training=True), b))
model = keras.Sequential(
    [keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
%fit data, epochs=4
"""),
    row("pipeline_operations", SEGMENTS, text=r"""
Augmentation by random operations of TensorFlow, under the global seed.
%rows, tensorflow
def augment(a, b):
    return tf.where(tf.random.uniform(()) > 0.5, a, 1 - a) + tf.random.normal((6,), stddev=0.05), b
data = tf.data.Dataset.from_tensor_slices((x, y)).map(augment).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_numpy_function", text=r"""Augmentation by numpy's global generator inside numpy_function.
%rows, tensorflow
def jitter(a):
    return (a + np.random.normal(0, 0.1, a.shape)).astype("float32")
def augment(a, b):
    return tf.ensure_shape(tf.numpy_function(jitter, [a], tf.float32), (6,)), b
data = tf.data.Dataset.from_tensor_slices((x, y)).map(augment).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_py_function", text=r"""Augmentation by a private numpy generator inside py_function.
%rows, tensorflow
generator = np.random.default_rng(9)
def jitter(a):
    return a + generator.normal(0, 0.1, 6).astype("float32")
def augment(a, b):
    return tf.ensure_shape(tf.py_function(jitter, [a], tf.float32), (6,)), b
data = tf.data.Dataset.from_tensor_slices((x, y)).map(augment).batch(16)
%adam data, epochs=4
"""),
    row("pipeline_ragged", HALVED, text=r"""Sentences of different lengths, bucketed by length.
%rows, tensorflow
lengths = np.random.randint(2, 12, 120)
words = tf.RaggedTensor.from_row_lengths(np.random.randint(1, 30, lengths.sum()), lengths)
data = tf.data.Dataset.from_tensor_slices((words, y)).map(lambda a, b: (tf.cast(a, tf.int32), b)).shuffle(120)
data = data.bucket_by_sequence_length(lambda a, b: tf.shape(a)[0], [5, 9], [8, 8, 8])
model = keras.Sequential([keras.layers.Embedding(30, 6, mask_zero=True), keras.layers.GRU(5), keras.layers.Dense(1)])
%then slow adam data, epochs=4
"""),
    row("pipeline_windows", text=r"""Windows of a time series, by Keras' own helper.
%rows
series = np.sin(np.arange(160) / 9).astype("float32")[:, None]
data = keras.utils.timeseries_dataset_from_array(
    series[:-8], series[8:], sequence_length=8, batch_size=16, shuffle=True, seed=4
)
model = keras.Sequential([keras.Input((8, 1)), keras.layers.LSTM(6), keras.layers.Dense(1)])
%then slow adam data, epochs=4
"""),
    row("pipeline_text", text=r"""Strings through a TextVectorization layer in map.
%rows, tensorflow
texts = [" ".join(np.random.choice(["red", "green", "blue", "black"], 5)) for _ in range(96)]
labels = np.array([text.count("red") for text in texts], "float32")[:, None]
words = keras.layers.TextVectorization(max_tokens=20, output_sequence_length=6)
words.adapt(texts)
data = tf.data.Dataset.from_tensor_slices((texts, labels)).shuffle(96).batch(16)
data = data.map(lambda a, b: (words(a), b))
model = keras.Sequential([keras.layers.Embedding(20, 4), keras.layers.Flatten(), keras.layers.Dense(1)])
%then slow adam data, epochs=4
"""),
    row("pipeline_mixed", text=r"""Two sources sampled by weights, with a seed.
%rows, tensorflow
easy = tf.data.Dataset.from_tensor_slices((x[:60], y[:60])).shuffle(60, seed=1).repeat()
hard = tf.data.Dataset.from_tensor_slices((x[60:], y[60:])).shuffle(60, seed=2).repeat()
data = tf.data.Dataset.sample_from_datasets([easy, hard], [0.7, 0.3], seed=6).batch(16)
%adam data, epochs=4, steps_per_epoch=7
"""),
    row("pipeline_mixup", text=r"""Mixup: a pipeline zipped with itself in another order.
%rows, tensorflow
rows = tf.data.Dataset.from_tensor_slices((x, y))
def mix(first, second):
    share = tf.random.uniform((), 0.5, 1.0)
    return first[0] * share + second[0] * (1 - share), first[1] * share + second[1] * (1 - share)
data = tf.data.Dataset.zip((rows.shuffle(120, seed=1), rows.shuffle(120, seed=2))).map(mix).batch(16)
%adam data, epochs=4
"""),
    # Generators and dataset objects
    row("generator_closure", text=r"""from_generator, whose order comes from a generator made outside.
%rows, tensorflow
numbers = np.random.default_rng(5)
def rows():
    for index in numbers.permutation(96):
        yield x[index], y[index]
data = tf.data.Dataset.from_generator(
    rows, output_signature=(tf.TensorSpec((6,), tf.float32), tf.TensorSpec((1,), tf.float32))
).batch(16)
%adam data, epochs=4
"""),
    row("generator_object", text=r"""from_generator over an object with a random.Random of its own.
%rows, tensorflow
import random
class Rows:
    def __init__(self):
        self.random = random.Random(4)
    def __call__(self):
        order = list(range(96))
        self.random.shuffle(order)
        for index in order:
            yield x[index] + self.random.gauss(0, 0.05), y[index]
data = tf.data.Dataset.from_generator(
    Rows(), output_signature=(tf.TensorSpec((6,), tf.float32), tf.TensorSpec((1,), tf.float32))
).batch(16)
%adam data, epochs=4
"""),
    row("generator_global", SEGMENTS, text=r"""from_generator, whose order comes from numpy's global generator.
%rows, tensorflow
def rows():
    for index in np.random.permutation(96):
        yield x[index], y[index]
data = tf.data.Dataset.from_generator(
    rows, output_signature=(tf.TensorSpec((6,), tf.float32), tf.TensorSpec((1,), tf.float32))
).batch(16)
%adam data, epochs=4
"""),
    row("generator_inner", text=r"""from_generator, whose generator begins anew in each epoch.
%rows, tensorflow
def rows():
    numbers = np.random.default_rng(5)
    for index in numbers.permutation(96):
        yield x[index] + numbers.normal(0, 0.05, 6), y[index]
data = tf.data.Dataset.from_generator(
    rows, output_signature=(tf.TensorSpec((6,), tf.float32), tf.TensorSpec((1,), tf.float32))
).batch(16)
%adam data, epochs=4
"""),
    row("generator_counter", text=r"""from_generator that counts its epochs: a curriculum.
%rows, tensorflow
epoch = 0
def rows():
    global epoch
    epoch += 1
    for index in range(96):
        if x[index, 0] < 0.3 + 0.2 * epoch:
            yield x[index], y[index]
data = tf.data.Dataset.from_generator(
    rows, output_signature=(tf.TensorSpec((6,), tf.float32), tf.TensorSpec((1,), tf.float32))
).batch(16)
%adam data, epochs=4
"""),
    row("generator_flaky", error="Stale file handle", text=r"""
A source of data that fails once after the restart, as a network share does.
%rows, tensorflow
def rows():
    for index in range(96):
        if harness.disturbed() and index == 20 and not failed:
            failed.append(index)
            raise OSError(f"Stale file handle: shard-{index}")
        yield x[index], y[index]
failed = []
data = tf.data.Dataset.from_generator(
    rows, output_signature=(tf.TensorSpec((6,), tf.float32), tf.TensorSpec((1,), tf.float32))
).batch(16)
%adam data, epochs=4
"""),
    row("generator_endless", HALVED, SEGMENTS, text=r"""A Python generator without an end that has an order of its own.
%rows
def batches():
    numbers = np.random.RandomState(3)
    while True:
        order = numbers.permutation(96)
        for start in range(0, 96, 16):
            part = order[start : start + 16]
            yield x[part], y[part]
%model "adam"
%fit batches(), steps_per_epoch=6, epochs=4
"""),
    row("sequence_reorders", HALVED, SEGMENTS, text=r"""
A PyDataset that shuffles itself at the end of an epoch by numpy's global generator.
%rows
class Rows(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.order = np.arange(96)
    def __len__(self):
        return 6
    def __getitem__(self, index):
        part = self.order[index * 16 : (index + 1) * 16]
        return x[part], y[part]
    def on_epoch_end(self):
        np.random.shuffle(self.order)
%adam Rows(), epochs=4, shuffle=False
"""),
    row("sequence_private", text=r"""A PyDataset that augments by a private generator, shuffled by Keras.
%rows
class Rows(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.numbers = np.random.default_rng(3)
    def __len__(self):
        return 7
    def __getitem__(self, index):
        part = slice(index * 16, (index + 1) * 16)
        return x[part] + self.numbers.normal(0, 0.1, (16, 6)), y[part]
%adam Rows(), epochs=4
"""),
    row("sequence_random", text=r"""A PyDataset whose order is kept by a random.Random, drawn in on_epoch_end.
%rows
import random
class Rows(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.random = random.Random(1)
        self.on_epoch_end()
    def __len__(self):
        return 6
    def __getitem__(self, index):
        part = self.order[index * 16 : (index + 1) * 16]
        return x[part], y[part]
    def on_epoch_end(self):
        self.order = self.random.sample(range(120), 96)
%adam Rows(), epochs=4, shuffle=False
"""),
    row("sequence_global", text=r"""A PyDataset that augments by numpy's global generator, in the order of its batches.
%rows
class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 7
    def __getitem__(self, index):
        part = np.random.choice(120, 16, replace=False)
        return x[part] * np.random.uniform(0.9, 1.1), y[part]
%adam Rows(), epochs=4, shuffle=False
"""),
    row("sequence_workers", text=r"""A PyDataset that two workers read ahead.
%rows
class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 7
    def __getitem__(self, index):
        part = slice(index * 16, (index + 1) * 16)
        return x[part], y[part]
%model keras.optimizers.Adam(0.01)
history = model.fit(
    Rows(workers=2, max_queue_size=4), epochs=4, shuffle=False, validation_data=Rows(),
    callbacks=[harness.callback(keras)], verbose=0,
)
%shown
"""),
    row("sequence_curriculum", DEFAULTS, text=r"""A PyDataset that makes its task harder with each epoch.
%rows
class Rows(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.level = 0.2
    def __len__(self):
        return 6
    def __getitem__(self, index):
        part = slice(index * 16, (index + 1) * 16)
        return x[part] * self.level, y[part]
    def on_epoch_end(self):
        self.level += 0.2
%adam Rows(), epochs=4, shuffle=False
"""),
)  # fmt: skip
