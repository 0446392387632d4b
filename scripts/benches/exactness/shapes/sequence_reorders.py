"""A PyDataset that shuffles itself at the end of an epoch by numpy's global generator."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Rows(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.order = np.arange(96)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        part = self.order[index * 16 : (index + 1) * 16]
        return x[part], y[part]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(Rows(), epochs=4, shuffle=False, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
