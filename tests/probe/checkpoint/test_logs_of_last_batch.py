"""A fit that is ended after the last batch of an epoch has that epoch's results, whatever its step returns."""

from __future__ import annotations

import sys

import pytest

from tests.probe.checkpoint.restarts import Restarts

pytestmark = pytest.mark.tf
SCRIPT = """
import itertools, json, os, signal, sys
import numpy as np
if os.environ["FRAMEWORK"] == "keras2":
    import tensorflow as tf
    keras = tf.keras
else:
    import keras
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf
keras.utils.set_random_seed(3)
x = np.random.rand(24, 4).astype("float32")
y = x.sum(1, keepdims=True)
OWN = os.environ["STEP"] == "own"


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)

    if OWN and os.environ["FRAMEWORK"] in ("tensorflow", "keras2"):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                error = self(x, training=True) - y
                loss = tf.reduce_mean(error**2)
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return {"error": loss, "least": tf.reduce_min(error), "rows": tf.shape(x)[0]}
    elif OWN and os.environ["FRAMEWORK"] == "torch":
        def train_step(self, data):
            x, y = data
            self.zero_grad()
            error = self(x, training=True) - y
            loss = (error**2).mean()
            loss.backward()
            weights = list(self.trainable_weights)
            import torch
            with torch.no_grad():
                self.optimizer.apply([weight.value.grad for weight in weights], weights)
            return {"error": loss, "least": error.min(), "rows": len(x)}
    elif OWN:
        def train_step(self, state, data):
            logs, state = super().train_step(state, data)
            return {"error": logs["loss"], "twice": 2 * logs["loss"]}, state


class Last(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if os.environ["KILL"] == "term,%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_end(self, epoch, logs=None):
        if os.environ["KILL"] == "end,%d" % epoch:
            os.kill(os.getpid(), signal.SIGKILL)
        print(json.dumps({key: float(value) for key, value in logs.items()}), flush=True)


model = Model()
if not OWN or os.environ["FRAMEWORK"] == "jax":
    model.compile("sgd", "mse", metrics=["mae"])
else:
    model.compile(optimizer="sgd")


def rows():
    while True:
        for at in range(0, 24, 4):
            yield x[at : at + 4], y[at : at + 4]


if os.environ["DATA"] == "arrays":
    data = dict(x=x, y=y, batch_size=4)
elif os.environ["DATA"] == "generator":
    data = dict(x=rows(), steps_per_epoch=6)
else:  # an epoch whose length is not known before its end
    kinds = tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))
    data = dict(x=tf.data.Dataset.from_generator(lambda: itertools.islice(rows(), 6), output_signature=kinds))
found = model.fit(**data, epochs=3, verbose=0, callbacks=[Last()])
print(json.dumps({key: [float(one) for one in values] for key, values in found.history.items()}), flush=True)
"""


ALL, OF_TENSORFLOW = ["tensorflow", "keras2", "torch", "jax"], ["tensorflow", "keras2"]


@pytest.mark.parametrize("step", ["own", "usual"])
@pytest.mark.parametrize(
    ("framework", "data", "kill"),
    [
        *((framework, data, "term,1,5") for framework in ALL for data in ("arrays", "generator")),
        *((framework, "dataset", "end,0") for framework in OF_TENSORFLOW),
    ],
)
def test_the_epoch_has_its_results(receiver, tmp_path, other_python, framework, step, data, kill):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    python = sys.executable if framework == "tensorflow" else other_python(framework)
    backend = {} if framework == "keras2" else {"KERAS_BACKEND": framework}
    restarts = Restarts(
        receiver, tmp_path, script, python, FRAMEWORK=framework, STEP=step, DATA=data, **backend
    )
    plain = restarts.undisturbed()
    restarts.attempt(kill=kill)
    resumed = restarts.attempt(resume=True)
    assert resumed.rows[-1] == plain.rows[-1]
    assert resumed.rows == plain.rows[-len(resumed.rows) :]
    # Keras on JAX cannot end an epoch without a batch.
    assert [text[:36] for text in resumed.notes("inexact")] == ["fit 1 goes back to the beginning of "] * (
        framework == "jax"
    )
