"""A table of anchors beside each batch, with a number of rows of its own."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
anchors = np.random.rand(100, 4).astype("float32")


class Detector(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(4)

    def call(self, inputs):
        return tf.reduce_mean(
            tf.matmul(self.dense(inputs["image"]), inputs["table"], transpose_b=True), 1, True
        )


data = (
    tf.data.Dataset.from_tensor_slices((x, y)).batch(20).map(lambda a, b: ({"table": anchors, "image": a}, b))
)
model = Detector()
model.compile(keras.optimizers.SGD(0.01), "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
