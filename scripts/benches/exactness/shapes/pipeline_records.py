"""TFRecord files, read in a fixed order and shuffled."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
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


data = (
    tf.data.TFRecordDataset(["data.tfrecord"]).map(parse).shuffle(64, seed=2).batch(16, drop_remainder=True)
)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
