"""A Normalization layer that is adapted first, and metrics with state of their own."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
normalise = keras.layers.Normalization()
normalise.adapt(x)
model = keras.Sequential([keras.Input((6,)), normalise, keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(
    keras.optimizers.Nadam(0.01),
    keras.losses.Huber(),
    metrics=[
        keras.metrics.RootMeanSquaredError(),
        keras.metrics.R2Score(),
        keras.metrics.MeanAbsoluteError(),
    ],
)
history = model.fit(x, y, 16, epochs=4, validation_split=0.25, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
