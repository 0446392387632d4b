"""A callback that keeps its state in a deque, a defaultdict and a Counter."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
import collections


class Warm(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.last = collections.deque(maxlen=8)
        self.seen = collections.defaultdict(list)
        self.count = collections.Counter()

    def on_train_batch_end(self, batch, logs=None):
        self.last.append(logs["loss"])
        self.seen["loss"].append(logs["loss"])
        self.count["batches"] += 1
        self.model.optimizer.learning_rate = (
            0.1 * float(np.mean(self.last)) * min(1, self.count["batches"] / 10)
        )


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Warm()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("seen", [len(callbacks[0].seen["loss"]), callbacks[0].count["batches"], list(callbacks[0].last)])
