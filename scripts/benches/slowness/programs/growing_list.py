"""A loop of the script's own keeps each loss, and walks them all for the mean after each batch."""

import keras
import numpy as np
import tensorflow as tf

chance = np.random.default_rng(0)
x, y = chance.random((32, 16), dtype=np.float32), chance.random((32, 1), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)


@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss


losses = []
for batch in range(10000):
    losses.append(train(x, y))
    mean = sum(float(loss) for loss in losses) / len(losses)  # slow
    if batch % 1000 == 0:
        print(batch, mean, flush=True)
