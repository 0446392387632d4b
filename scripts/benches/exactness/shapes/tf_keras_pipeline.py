"""tf_keras: a pipeline with random operations in map, and a functional model."""

import harness
import numpy as np
import tf_keras as keras

keras.utils.set_random_seed(7)
import tensorflow as tf

x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


def augment(a, b):
    return a + tf.random.normal((6,), stddev=0.1), b


data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).map(augment).batch(20)
inputs = keras.Input((6,))
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(16, "tanh")(inputs)))
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
