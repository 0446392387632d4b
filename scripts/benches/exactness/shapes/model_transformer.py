"""A little transformer with attention, dropout and a schedule of its own."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class Warm(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        step = keras.ops.cast(step, "float32") + 1.0
        return 0.05 * keras.ops.minimum(step**-0.5, step * 10**-1.5)


inputs = keras.Input((6,))
tokens = keras.layers.Reshape((6, 1))(inputs)
tokens = keras.layers.Dense(8)(tokens)
tokens = keras.layers.LayerNormalization()(
    tokens + keras.layers.MultiHeadAttention(2, 4, dropout=0.1)(tokens, tokens)
)
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(tokens)))
model.compile(keras.optimizers.Adam(Warm()), "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
