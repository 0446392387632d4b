"""An optimizer with a moving average, swapped in by SwapEMAWeights."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9), "mse")
callbacks = [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)]
history = model.fit(
    x, y, 20, epochs=5, validation_split=0.2, callbacks=[*callbacks, harness.callback(keras)], verbose=0
)
harness.history(history)
harness.model(model)
