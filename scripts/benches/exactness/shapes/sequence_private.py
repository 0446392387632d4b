"""A PyDataset that augments by a private generator, shuffled by Keras."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Rows(keras.utils.PyDataset):
    def __init__(self, **options):
        super().__init__(**options)
        self.numbers = np.random.default_rng(3)

    def __len__(self):
        return 7

    def __getitem__(self, index):
        part = slice(index * 16, (index + 1) * 16)
        return x[part] + self.numbers.normal(0, 0.1, (16, 6)), y[part]


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(Rows(), epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
