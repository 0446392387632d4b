"""Strings through a TextVectorization layer in map."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
texts = [" ".join(np.random.choice(["red", "green", "blue", "black"], 5)) for _ in range(96)]
labels = np.array([text.count("red") for text in texts], "float32")[:, None]
words = keras.layers.TextVectorization(max_tokens=20, output_sequence_length=6)
words.adapt(texts)
data = tf.data.Dataset.from_tensor_slices((texts, labels)).shuffle(96).batch(16)
data = data.map(lambda a, b: (words(a), b))
model = keras.Sequential([keras.layers.Embedding(20, 4), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
