"""Nothing is wrong: an array in memory, a model that keeps the processor busy."""

import keras
import numpy as np

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
model.fit(x, y, batch_size=128, epochs=100, verbose=2)
