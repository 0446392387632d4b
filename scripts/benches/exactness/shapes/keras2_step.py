"""Keras 2: a train_step with a counter, dropout, and two fits."""

import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Net(keras.Sequential):
    def train_step(self, data):
        self.step.assign_add(1.0)
        features, target = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features, training=True) - target) ** 2) * tf.minimum(
                1.0, self.step / 20
            )
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


model = Net(
    [keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
)
model.step = tf.Variable(0.0, trainable=False)
model.compile("adam")
first = model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
history = model.fit(x, y, 20, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
harness.history(first, "first")
harness.history(history)
harness.model(model)
harness.show("step", float(model.step))
