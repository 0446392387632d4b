"""Two fits with the same pipeline: a frozen base first, then all of the model."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120).batch(20)
base = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization()]
)
base.trainable = False
model = keras.Sequential([base, keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
first = model.fit(data, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
harness.history(first, "first")
base.trainable = True
model.compile(keras.optimizers.Adam(0.001), "mse")
history = model.fit(data, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
