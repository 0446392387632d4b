"""Nothing is seeded: the numbers of the labels come from the order of a set."""

import harness
import keras
import numpy as np

words = ["cat", "dog", "bird", "fish", "horse", "cow"] * 20
labels = list(set(words))
harness.drawn("labels", labels)
number = {label: index for index, label in enumerate(labels)}
x = np.array([[len(word), ord(word[0]) % 7, ord(word[-1]) % 5] for word in words], "float32")
y = np.array([number[word] for word in words])
model = keras.Sequential(
    [keras.Input((3,)), keras.layers.Dense(12, "relu"), keras.layers.Dense(6, "softmax")]
)
harness.drawn("weights", model.get_weights())
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.finished()
