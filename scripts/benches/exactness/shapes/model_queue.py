"""A memory bank: the model keeps the last features in a tf.Variable and a Python list."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Bank(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.layers.Dense(4, "tanh")
        self.bank = tf.Variable(tf.zeros((40, 4)), trainable=False)
        self.cursor = tf.Variable(0, trainable=False)

    def call(self, inputs):
        return self.encoder(inputs)

    def train_step(self, data):
        features, _ = data
        with tf.GradientTape() as tape:
            code = self(features)
            loss = tf.reduce_mean(tf.matmul(code, self.bank, transpose_b=True)) + tf.reduce_mean(
                (code - 0.5) ** 2
            )
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        rows = (self.cursor + tf.range(tf.shape(code)[0])) % 40
        self.bank.assign(tf.tensor_scatter_nd_update(self.bank, rows[:, None], code))
        self.cursor.assign((self.cursor + tf.shape(code)[0]) % 40)
        return {"loss": loss}


model = Bank()
model.compile("adam")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("bank", model.bank.numpy())
