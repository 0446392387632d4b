"""A batch size that is part of the model, as recipes for other devices have it."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
inputs = keras.Input((6,), batch_size=20)
hidden = keras.layers.Lambda(lambda t: tf.reshape(t, (20, 2, 2)))(keras.layers.Dense(4)(inputs))
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(hidden)))
model.compile("sgd", "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
