"""A graph: rows of nodes and of edges differ, and the edges name nodes."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
nodes = np.random.rand(16, 4).astype("float32")
edges = np.random.randint(0, 16, (40, 2))


class Graph(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.out = keras.layers.Dense(6, "tanh"), keras.layers.Dense(1)

    def call(self, inputs):
        hidden = self.dense(inputs["nodes"])
        sent = tf.gather(hidden, inputs["edges"][:, 0])
        return self.out(
            hidden + tf.math.unsorted_segment_sum(sent, inputs["edges"][:, 1], tf.shape(hidden)[0])
        )


def graphs():
    for scale in range(1, 7):
        yield {"nodes": nodes * scale / 6, "edges": edges[: 10 + scale * 5]}, nodes.sum(1, keepdims=True)


layout = (
    {"nodes": tf.TensorSpec((None, 4)), "edges": tf.TensorSpec((None, 2), tf.int64)},
    tf.TensorSpec((None, 1)),
)
data = tf.data.Dataset.from_generator(graphs, output_signature=layout)
model = Graph()
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(data, epochs=4, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
