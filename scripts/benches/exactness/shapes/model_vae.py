"""A VAE with add_loss, whose weight of the divergence grows in a tf.Variable."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
beta = tf.Variable(0.0, trainable=False)


class Sampling(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(3)

    def call(self, inputs):
        mean, log_variance = inputs
        divergence = -0.5 * tf.reduce_mean(1 + log_variance - mean**2 - tf.exp(log_variance))
        self.add_loss(beta * divergence)
        return mean + tf.exp(0.5 * log_variance) * keras.random.normal(tf.shape(mean), seed=self.seed)


class Annealing(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        beta.assign(tf.minimum(1.0, beta + 0.05))


inputs = keras.Input((6,))
hidden = keras.layers.Dense(8, "relu")(inputs)
latent = Sampling()([keras.layers.Dense(2)(hidden), keras.layers.Dense(2)(hidden)])
model = keras.Model(inputs, keras.layers.Dense(6)(keras.layers.Dense(8, "relu")(latent)))
model.compile("adam", "mse")
history = model.fit(x, x, 20, epochs=5, callbacks=[Annealing(), harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("beta", float(beta))
