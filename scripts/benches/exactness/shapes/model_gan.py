"""The GAN of Keras' guide: two models, two optimizers, a train_step of its own."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent):
        super().__init__()
        self.discriminator, self.generator, self.latent = discriminator, generator, latent
        self.seed = keras.random.SeedGenerator(1337)
        self.d_loss, self.g_loss = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer, loss):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_of = d_optimizer, g_optimizer, loss

    @property
    def metrics(self):
        return [self.d_loss, self.g_loss]

    def train_step(self, real):
        count = tf.shape(real)[0]
        fake = self.generator(keras.random.normal((count, self.latent), seed=self.seed))
        labels = tf.concat([tf.ones((count, 1)), tf.zeros((count, 1))], 0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_of(labels, self.discriminator(tf.concat([fake, real], 0)))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply_gradients(zip(tape.gradient(d_loss, weights), weights))
        noise = keras.random.normal((count, self.latent), seed=self.seed)
        with tf.GradientTape() as tape:
            g_loss = self.loss_of(tf.zeros((count, 1)), self.discriminator(self.generator(noise)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply_gradients(zip(tape.gradient(g_loss, weights), weights))
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {"d_loss": self.d_loss.result(), "g_loss": self.g_loss.result()}


discriminator = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
generator = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(4)])
real = np.random.rand(96, 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices(real).shuffle(96, seed=1).batch(16)
gan = GAN(discriminator, generator, 3)
gan.compile(
    keras.optimizers.Adam(1e-3),
    keras.optimizers.Adam(1e-3),
    keras.losses.BinaryCrossentropy(from_logits=True),
)
history = gan.fit(data, epochs=4, verbose=0, callbacks=[harness.callback(keras)])
harness.history(history)
harness.model(discriminator, "discriminator")
harness.model(generator, "generator")
harness.variables(gan.d_optimizer.variables, "discriminator's optimizer")
harness.variables(gan.g_optimizer.variables, "generator's optimizer")
