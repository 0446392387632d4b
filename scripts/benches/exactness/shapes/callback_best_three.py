"""A callback that keeps the three best sets of weights in a heap."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
import heapq


class BestThree(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.heap = []

    def on_epoch_end(self, epoch, logs=None):
        heapq.heappush(self.heap, (-float(logs["loss"]), epoch, self.model.get_weights()))
        del self.heap[3:]


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [BestThree()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("kept", sorted(entry[1] for entry in callbacks[0].heap))
harness.show("ensemble", [np.mean([entry[2][i] for entry in callbacks[0].heap], axis=0) for i in range(4)])
