"""A teacher is trained first, then a student learns from it and from the data."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
teacher = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
teacher.compile("adam", "mse")
teacher.fit(x, y, 20, epochs=3, callbacks=[harness.callback(keras)], verbose=0)


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.student, self.teacher = student, teacher
        self.teacher.trainable = False

    def call(self, inputs):
        return self.student(inputs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        soft = keras.ops.mean(keras.ops.square(self.teacher(x) - y_pred))
        return 0.5 * soft + 0.5 * super().compute_loss(x, y, y_pred, sample_weight)


student = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
model = Distiller(student, teacher)
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
