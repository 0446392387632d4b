"""Keras 2: a Sequence that shuffles itself at an epoch's end, and an accumulator reset at its beginning."""

import harness
import numpy as np
from tensorflow import keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Rows(keras.utils.Sequence):
    def __init__(self):
        self.order = np.arange(96)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        part = self.order[index * 16 : (index + 1) * 16]
        return x[part], y[part]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


class Spread(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))

    def on_epoch_end(self, epoch, logs=None):
        keras.backend.set_value(self.model.optimizer.learning_rate, float(np.std(self.losses)))


model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
history = model.fit(Rows(), epochs=4, shuffle=False, callbacks=[Spread(), harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
