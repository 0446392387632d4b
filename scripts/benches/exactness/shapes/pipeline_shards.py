"""Text files, their list shuffled, read by interleave."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
for shard in range(4):
    np.savetxt(f"part-{shard}.csv", np.hstack([x, y])[shard::4], delimiter=",")


def parse(line):
    row = tf.io.decode_csv(line, [0.0] * 7)
    return tf.stack(row[:6]), tf.stack(row[6:])


data = tf.data.Dataset.list_files("part-*.csv", shuffle=True)
data = (
    data.interleave(tf.data.TextLineDataset, cycle_length=2, num_parallel_calls=2)
    .map(parse)
    .shuffle(30)
    .batch(16)
)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
