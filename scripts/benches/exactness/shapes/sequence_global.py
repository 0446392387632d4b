"""A PyDataset that augments by numpy's global generator, in the order of its batches."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 7

    def __getitem__(self, index):
        part = np.random.choice(120, 16, replace=False)
        return x[part] * np.random.uniform(0.9, 1.1), y[part]


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(Rows(), epochs=4, shuffle=False, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
