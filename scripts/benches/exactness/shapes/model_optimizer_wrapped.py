"""An optimizer of the script's own: lookahead over SGD, slow weights in a list."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Lookahead(keras.optimizers.SGD):
    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.slow, self.count = None, tf.Variable(0, trainable=False)

    def apply_gradients(self, pairs):
        pairs = list(pairs)
        weights = [weight for _, weight in pairs]
        if self.slow is None:
            with tf.init_scope():
                self.slow = [tf.Variable(weight.value) for weight in weights]
        super().apply_gradients(pairs)
        self.count.assign_add(1)
        if tf.equal(self.count % 5, 0):
            for slow, weight in zip(self.slow, weights):
                slow.assign_add(0.5 * (weight - slow))
                weight.assign(slow)


class Net(keras.Sequential):
    def train_step(self, data):
        features, target = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features, training=True) - target) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}


model = Net([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(Lookahead(0.1, momentum=0.5), run_eagerly=True)
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
