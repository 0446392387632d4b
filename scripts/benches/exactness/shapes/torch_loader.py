"""Keras 3 on torch: a DataLoader that shuffles by torch's global generator."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
import torch

torch.manual_seed(3)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
rows = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
data = torch.utils.data.DataLoader(rows, batch_size=20, shuffle=True)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
