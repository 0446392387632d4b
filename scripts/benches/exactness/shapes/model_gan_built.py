"""A GAN whose subclass is built, with its optimizers made in __init__."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class GAN(keras.Model):
    def __init__(self):
        super().__init__()
        self.critic = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
        )
        self.maker = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(6)]
        )
        self.critic_optimizer = keras.optimizers.Adam(1e-2)
        self.maker_optimizer = keras.optimizers.RMSprop(1e-2)

    def call(self, inputs):
        return self.critic(self.maker(inputs))

    def train_step(self, data):
        real, _ = data
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(self(real)) - tf.reduce_mean(self.critic(real))
            weights = self.critic.trainable_weights
            self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        with tf.GradientTape() as tape:
            made = -tf.reduce_mean(self(real))
        weights = self.maker.trainable_weights
        self.maker_optimizer.apply_gradients(zip(tape.gradient(made, weights), weights))
        return {"critic": loss, "maker": made}


model = GAN()
model.build((None, 6))
model.compile()
history = model.fit(x, y, 20, epochs=4, verbose=0, callbacks=[harness.callback(keras)])
harness.history(history)
harness.model(model)
harness.variables(model.critic_optimizer.variables, "critic's optimizer")
harness.variables(model.maker_optimizer.variables, "maker's optimizer")
