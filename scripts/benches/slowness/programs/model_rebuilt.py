"""A new model is made for each batch, so that each batch is traced anew."""

import keras
import numpy as np


def built():
    layers = [keras.layers.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(1)]
    model = keras.Sequential(layers)  # slow
    model.compile("sgd", "mse")
    return model


chance = np.random.default_rng(0)
weights = built().get_weights()
for batch in range(400):
    x, y = chance.random((32, 16), dtype=np.float32), chance.random((32, 1), dtype=np.float32)
    model = built()  # slow
    model.set_weights(weights)
    loss = model.train_on_batch(x, y)  # slow
    weights = model.get_weights()
    if batch % 20 == 0:
        print(batch, loss, flush=True)
