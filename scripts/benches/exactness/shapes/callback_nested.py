"""A callback that owns another one and passes everything on."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Quiet(keras.callbacks.Callback):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def set_model(self, model):
        super().set_model(model)
        self.inner.set_model(model)

    def on_train_begin(self, logs=None):
        self.inner.on_train_begin(logs)

    def on_epoch_end(self, epoch, logs=None):
        self.inner.on_epoch_end(epoch, {"loss": logs["val_loss"]})


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Quiet(keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.2, factor=0.5))]
history = model.fit(
    x, y, 20, epochs=6, validation_split=0.2, callbacks=[*callbacks, harness.callback(keras)], verbose=0
)
harness.history(history)
harness.model(model)
harness.show("inner", [callbacks[0].inner.wait, callbacks[0].inner.best])
