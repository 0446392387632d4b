"""Sentences of different lengths, bucketed by length."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
lengths = np.random.randint(2, 12, 120)
words = tf.RaggedTensor.from_row_lengths(np.random.randint(1, 30, lengths.sum()), lengths)
data = tf.data.Dataset.from_tensor_slices((words, y)).map(lambda a, b: (tf.cast(a, tf.int32), b)).shuffle(120)
data = data.bucket_by_sequence_length(lambda a, b: tf.shape(a)[0], [5, 9], [8, 8, 8])
model = keras.Sequential(
    [keras.layers.Embedding(30, 6, mask_zero=True), keras.layers.GRU(5), keras.layers.Dense(1)]
)
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
