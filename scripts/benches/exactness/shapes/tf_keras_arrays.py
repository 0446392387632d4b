"""tf_keras: arrays, early stopping, and the scheduler of the documentation."""

import harness
import numpy as np
import tf_keras as keras

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


def scheduler(epoch, lr):
    return lr if epoch < 1 else float(lr * np.exp(-0.1))


model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
callbacks = [
    keras.callbacks.LearningRateScheduler(scheduler),
    keras.callbacks.CSVLogger("log.csv"),
    keras.callbacks.EarlyStopping(monitor="loss", patience=2, restore_best_weights=True),
    harness.callback(keras),
]
history = model.fit(x, y, 20, epochs=5, callbacks=callbacks, verbose=0)
harness.history(history)
harness.model(model)
harness.file("log.csv")
