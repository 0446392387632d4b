"""A loop of train_on_batch."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
losses = []
for epoch in range(4):
    harness.epoch(epoch)
    order = np.random.permutation(120)
    for number in range(6):
        rows = order[number * 20 : (number + 1) * 20]
        losses.append(float(model.train_on_batch(x[rows], y[rows])))
        harness.batch(epoch, number)
harness.show("losses", losses)
harness.model(model)
