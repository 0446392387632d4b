"""The loss of the guide on distribution: a mean by a global batch size that is written down."""

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

    def call(self, inputs):
        return self.out(self.hidden(inputs))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.nn.compute_average_loss(tf.square(y - y_pred)[:, 0], global_batch_size=20)


model = Net()
model.compile(keras.optimizers.SGD(0.1))
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
