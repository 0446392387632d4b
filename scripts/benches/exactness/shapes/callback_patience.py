"""EarlyStopping that ends the training, and then the best weights."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [
    keras.callbacks.EarlyStopping(monitor="loss", patience=1, min_delta=0.05, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.1, cooldown=1),
]
history = model.fit(x, y, 20, epochs=9, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("stopped", [callbacks[0].stopped_epoch, callbacks[0].best_epoch])
