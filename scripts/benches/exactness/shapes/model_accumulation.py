"""Gradients gathered over three batches, clipped, with a moving average of the weights."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
optimizer = keras.optimizers.AdamW(
    0.01,
    weight_decay=0.01,
    use_ema=True,
    ema_overwrite_frequency=4,
    gradient_accumulation_steps=3,
    clipnorm=1.0,
)
model.compile(optimizer, "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
