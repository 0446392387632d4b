"""Dictionaries of arrays for a functional model with two inputs and two outputs."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
numbers, words = np.random.rand(96, 4).astype("float32"), np.random.randint(0, 20, (96, 5))
targets = {"price": numbers.sum(1, keepdims=True), "kind": words[:, 0] % 3}
first, second = keras.Input((4,), name="numbers"), keras.Input((5,), name="words", dtype="int32")
text = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(20, 6)(second))
both = keras.layers.Concatenate()([keras.layers.Dense(8, "relu")(first), text])
price, kind = keras.layers.Dense(1, name="price")(both), keras.layers.Dense(3, "softmax", name="kind")(both)
model = keras.Model([first, second], {"price": price, "kind": kind})
model.compile(
    "adam",
    {"price": "mse", "kind": "sparse_categorical_crossentropy"},
    loss_weights={"price": 0.5, "kind": 1.0},
    metrics={"kind": "accuracy"},
)
history = model.fit(
    {"numbers": numbers, "words": words},
    targets,
    16,
    epochs=4,
    callbacks=[harness.callback(keras)],
    verbose=0,
)
harness.history(history)
harness.model(model)
