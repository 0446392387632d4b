"""A small training that says what it came to: equal words, equal weights."""

import hashlib
import os
import time

import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.default_rng(7).normal(size=(512, 8)).astype("float32")
y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")
model = keras.Sequential([keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1, activation="sigmoid")])
model.compile(optimizer="adam", loss="binary_crossentropy")


class Slow(keras.callbacks.Callback):
    """Steps that take a while, as real ones do."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(float(os.environ.get("PAUSE", "0.06")))


model.fit(x, y, batch_size=8, epochs=3, verbose=0, callbacks=[Slow()])
text = hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
print(f"came to epoch {3} with {text[:16]}", flush=True)
