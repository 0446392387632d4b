"""A mean teacher: a clone of the model, held by a callback, follows it."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


class MeanTeacher(keras.callbacks.Callback):
    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher

    def on_train_batch_end(self, batch, logs=None):
        pairs = zip(self.teacher.weights, self.model.weights, strict=True)
        for slow, fast in pairs:
            slow.assign(0.95 * slow + 0.05 * fast)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
teacher = keras.models.clone_model(model)
model.compile("adam", "mse")
history = model.fit(x, y, 20, epochs=4, callbacks=[MeanTeacher(teacher), harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("teacher", teacher.get_weights())
