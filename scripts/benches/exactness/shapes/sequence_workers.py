"""A PyDataset that two workers read ahead."""

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
        part = slice(index * 16, (index + 1) * 16)
        return x[part], y[part]


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(
    Rows(workers=2, max_queue_size=4),
    epochs=4,
    shuffle=False,
    validation_data=Rows(),
    callbacks=[harness.callback(keras)],
    verbose=0,
)
harness.history(history)
harness.model(model)
