"""A train_step that counts its steps in a tf.Variable of the model."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)
        self.step = tf.Variable(0.0, trainable=False)

    def call(self, inputs):
        return self.out(self.hidden(inputs))

    def train_step(self, data):
        self.step.assign_add(1.0)
        features, target = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features) - target) ** 2) * tf.minimum(1.0, self.step / 20.0)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


model = Net()
model.compile(keras.optimizers.SGD(0.1))
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("step", float(model.step))
