"""InfoNCE: each sample of a batch is compared with all the others."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


def contrast(target, code):
    code = tf.math.l2_normalize(code, 1)
    likeness = tf.matmul(code, code, transpose_b=True) / 0.1
    labels = tf.cast(tf.abs(target - tf.transpose(target)) < 0.1, tf.float32)
    return tf.nn.softmax_cross_entropy_with_logits(labels / tf.reduce_sum(labels, 1, keepdims=True), likeness)


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(4)])
model.compile(keras.optimizers.SGD(0.1), contrast)
history = model.fit(x, y, 20, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
