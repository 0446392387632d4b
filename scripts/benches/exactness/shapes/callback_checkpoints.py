"""ModelCheckpoint with a name an epoch, and one that saves each so many batches."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [
    keras.callbacks.ModelCheckpoint("epoch-{epoch:02d}.weights.h5", save_weights_only=True),
    keras.callbacks.ModelCheckpoint("best-{epoch}.keras", monitor="loss", save_best_only=True),
    keras.callbacks.ModelCheckpoint("latest.keras", save_freq=4),
]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
import os

harness.show("names", sorted(name for name in os.listdir() if name.endswith((".h5", ".keras"))))
for name in ("best-1.keras", "best-4.keras", "latest.keras"):
    harness.saved(name, keras)
for epoch in range(1, 6):
    model.load_weights(f"epoch-{epoch:02d}.weights.h5")
    harness.show(f"epoch {epoch}", model.get_weights())
