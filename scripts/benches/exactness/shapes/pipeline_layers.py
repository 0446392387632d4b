"""Augmentation of images by Keras' random layers, in map."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
images, labels = np.random.rand(96, 8, 8, 3).astype("float32"), np.random.randint(0, 3, 96)
augment = keras.Sequential([keras.layers.RandomFlip("horizontal"), keras.layers.RandomRotation(0.1)])
data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(48).batch(16)
data = data.map(lambda a, b: (augment(a, training=True), b))
model = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        keras.layers.Conv2D(4, 3),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(3),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
