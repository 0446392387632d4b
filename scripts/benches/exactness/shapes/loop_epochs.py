"""A loop of the script's own over epochs, by initial_epoch."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
losses = []
for epoch in range(5):
    history = model.fit(
        x, y, 20, initial_epoch=epoch, epochs=epoch + 1, callbacks=[harness.callback(keras)], verbose=0
    )
    losses += history.history["loss"]
    model.optimizer.learning_rate = 0.01 * 0.8**epoch
harness.show("losses", losses)
harness.model(model)
