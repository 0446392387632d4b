"""A stateful LSTM with a fixed batch, whose state is reset at each epoch's beginning."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(96, 5, 2).astype("float32")
y = x.mean((1, 2))[:, None]


class Reset(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        lstm.reset_states() if hasattr(lstm, "reset_states") else lstm.reset_state()


lstm = keras.layers.LSTM(4, stateful=True)
model = keras.Sequential([keras.Input(batch_shape=(16, 5, 2)), lstm, keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(
    x, y, 16, epochs=4, shuffle=False, callbacks=[Reset(), harness.callback(keras)], verbose=0
)
harness.history(history)
harness.model(model)
print("loss", model.evaluate(x, y, 16, verbose=0))
