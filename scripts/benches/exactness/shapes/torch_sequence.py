"""Keras 3 on torch: a PyDataset that reorders itself, and the scheduler of the documentation."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Rows(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.order = np.arange(96)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        part = self.order[index * 16 : (index + 1) * 16]
        return x[part], y[part]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


def scheduler(epoch, lr):
    return lr if epoch < 1 else float(lr * np.exp(-0.1))


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [keras.callbacks.LearningRateScheduler(scheduler), harness.callback(keras)]
history = model.fit(Rows(), epochs=4, shuffle=False, callbacks=callbacks, verbose=0)
harness.history(history)
harness.model(model)
