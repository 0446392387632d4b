"""Nothing is seeded: data drawn by tf.random, augmentation by random operations in map."""

import harness
import keras
import tensorflow as tf

x = tf.random.uniform((120, 6))
harness.drawn("data", x)
y = tf.sin(tf.reduce_sum(x, 1, keepdims=True) * 3)
data = tf.data.Dataset.from_tensor_slices((x, y)).map(
    lambda a, b: (a + tf.random.normal((6,), stddev=0.1), b)
)
data = data.batch(20)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
harness.drawn("weights", model.get_weights())
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.finished()
