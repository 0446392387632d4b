"""A script with tf.train.CheckpointManager, which restores the latest at its start."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse")
counter = tf.Variable(0)
manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model, counter=counter), "checkpoints", 2)
manager.restore_or_initialize()


class Keep(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        counter.assign_add(1)
        manager.save()


history = model.fit(x, y, 20, epochs=4, callbacks=[Keep(), harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("counter", int(counter))
