"""The model computes in float64."""

import keras
import numpy as np

keras.backend.set_floatx("float64")
chance = np.random.default_rng(0)
x = chance.random((2048, 512))
y = chance.integers(0, 10, 2048)
model = keras.Sequential(
    [
        keras.layers.Input((512,)),
        keras.layers.Dense(1024, activation="relu"),
        keras.layers.Dense(1024, activation="relu"),
        keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=128, epochs=120, verbose=2)
