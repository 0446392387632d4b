"""Windows of a time series, by Keras' own helper."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
series = np.sin(np.arange(160) / 9).astype("float32")[:, None]
data = keras.utils.timeseries_dataset_from_array(
    series[:-8], series[8:], sequence_length=8, batch_size=16, shuffle=True, seed=4
)
model = keras.Sequential([keras.Input((8, 1)), keras.layers.LSTM(6), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
