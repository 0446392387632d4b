"""Keras 2: an Iterator of images, as ImageDataGenerator has it: its order comes from a seed and a counter."""

import harness
import numpy as np
from tensorflow import keras

keras.utils.set_random_seed(7)
images = np.random.rand(96, 8, 8, 3).astype("float32")
labels = np.random.randint(0, 2, 96).astype("float32")


class Flips(keras.preprocessing.image.Iterator):
    def _get_batches_of_transformed_samples(self, indices):
        flipped = np.random.random(len(indices)) < 0.5
        batch = images[indices]
        batch[flipped] = batch[flipped][:, :, ::-1]
        return batch, labels[indices]


layers = [keras.layers.Conv2D(4, 3, input_shape=(8, 8, 3)), keras.layers.GlobalAveragePooling2D()]
model = keras.Sequential([*layers, keras.layers.Dense(1)])
model.compile("adam", "mse")
data = Flips(len(images), 16, shuffle=True, seed=3)
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("seen", data.total_batches_seen)
