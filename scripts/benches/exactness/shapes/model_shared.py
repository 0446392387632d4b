"""Weights shared by two layers: an embedding that is the output as well."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
words = np.random.randint(0, 12, (96, 4))


class Tied(keras.layers.Layer):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding

    def call(self, inputs):
        return keras.ops.matmul(inputs, keras.ops.transpose(self.embedding.embeddings))


embedding = keras.layers.Embedding(12, 5)
inputs = keras.Input((4,), dtype="int32")
hidden = keras.layers.GRU(5)(embedding(inputs))
model = keras.Model(inputs, Tied(embedding)(hidden))
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
history = model.fit(words, words[:, 0], 16, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
