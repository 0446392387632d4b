"""Arrays with validation data of their own, every second epoch, and class weights."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(130, 6).astype("float32")
y = np.digitize(x.sum(1), [2.5, 3.5])
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(12, "relu"), keras.layers.Dense(3, "softmax")]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    x[:100],
    y[:100],
    16,
    epochs=5,
    validation_data=(x[100:], y[100:]),
    validation_freq=2,
    class_weight={0: 1.0, 1: 0.5, 2: 3.0},
    callbacks=[harness.callback(keras)],
    verbose=0,
)
harness.history(history)
harness.model(model)
print("accuracy", model.evaluate(x[100:], y[100:], verbose=0)[1])
