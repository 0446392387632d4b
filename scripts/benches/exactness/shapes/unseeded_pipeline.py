"""Nothing is seeded: a shuffled pipeline, dropout, and split by take and skip."""

import harness
import keras
import numpy as np
import tensorflow as tf

x = np.linspace(0, 1, 720).reshape(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
every = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120, reshuffle_each_iteration=False)
harness.drawn("first", next(iter(every.batch(8)))[0])
data, held_out = every.take(96).shuffle(96).batch(16), every.skip(96).batch(12)
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
)
harness.drawn("weights", model.get_weights())
model.compile("adam", "mse")
history = model.fit(data, epochs=4, validation_data=held_out, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.finished()
