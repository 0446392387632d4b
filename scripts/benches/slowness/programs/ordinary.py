"""An ordinary training, to be slowed from outside: argument 1 is the number of epochs, 2 how nice it is."""

import os
import sys

import keras
import numpy as np

os.nice(int(sys.argv[2]))
chance = np.random.default_rng(0)
x = chance.random((2048, 512), dtype=np.float32)
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
model.fit(x, y, batch_size=128, epochs=int(sys.argv[1]), verbose=2)
