"""CSVLogger on a file of its own and on one that an earlier training began."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
with open("all.csv", "w") as earlier:
    earlier.write("epoch,loss,val_loss\n0,9.0,9.0\n")


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [keras.callbacks.CSVLogger("own.csv"), keras.callbacks.CSVLogger("all.csv", append=True)]
history = model.fit(
    x, y, 20, epochs=5, validation_split=0.2, callbacks=[*callbacks, harness.callback(keras)], verbose=0
)
harness.history(history)
harness.model(model)
harness.file("own.csv")
harness.file("all.csv")
