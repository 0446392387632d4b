"""A loop of the script's own with GradientTape."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120, seed=1).batch(20)


@tf.function
def step(features, target):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(features) - target) ** 2)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


losses = []
for epoch in range(4):
    harness.epoch(epoch)
    for number, (features, target) in enumerate(data):
        losses.append(float(step(features, target)))
        harness.batch(epoch, number)
harness.show("losses", losses)
harness.model(model)
