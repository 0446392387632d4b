"""A number of Python is an argument of a tf.function: each new value is traced anew."""

import keras
import numpy as np
import tensorflow as tf

chance = np.random.default_rng(0)
x, y = chance.random((32, 16), dtype=np.float32), chance.random((32, 1), dtype=np.float32)
model = keras.Sequential(
    [keras.layers.Input((16,)), *[keras.layers.Dense(16) for _ in range(6)], keras.layers.Dense(1)]
)
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)


@tf.function
def train(x, y, scale):
    with tf.GradientTape() as tape:
        loss = scale * tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


for batch in range(300):
    loss = train(x, y, 1.0 / (batch + 1))  # slow
    if batch % 50 == 0:
        print(batch, float(loss), flush=True)
