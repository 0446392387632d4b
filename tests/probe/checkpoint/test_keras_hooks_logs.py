"""A fit that is ended after the last batch of an epoch has that epoch's results, whatever its step returns."""

from __future__ import annotations

import sys

import pytest

from tests.probe.checkpoint.restarts import Restarts

pytestmark = pytest.mark.tf
SCRIPT = """
import itertools, json, os, signal, sys, threading
import numpy as np
if os.environ["FRAMEWORK"] == "keras2":
    import tensorflow as tf
    keras = tf.keras
elif os.environ["FRAMEWORK"] == "tf_keras":
    import tensorflow as tf
    import tf_keras as keras
else:
    import keras
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf
keras.utils.set_random_seed(3)
x = np.random.rand(24, 4).astype("float32")
y = x.sum(1, keepdims=True)
OWN, ODD = os.environ["STEP"] == "own", os.environ["STEP_RETURNS"] == "odd"


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs)

    if OWN and os.environ["FRAMEWORK"] in ("tensorflow", "older", "keras2", "tf_keras"):
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
            found = {"error": loss, "least": error.min(), "rows": len(x)}
            return {**found, "odd": threading.Lock()} if ODD else found  # what a checkpoint cannot keep
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
        print(json.dumps({key: float(value) for key, value in logs.items() if key != "odd"}), flush=True)


at_once = {"steps_per_execution": 2} if os.environ["AT_ONCE"] == "2" else {}
model = Model()
if not OWN or os.environ["FRAMEWORK"] == "jax":
    model.compile("sgd", "mse", metrics=["mae"], **at_once)
else:
    model.compile(optimizer="sgd", **at_once)


def rows():
    while True:
        for at in range(0, 24, 4):
            yield x[at : at + 4], y[at : at + 4]


if os.environ["DATA"] == "arrays":
    data = dict(x=x, y=y, batch_size=4)
elif os.environ["DATA"] == "generator":
    data = dict(x=rows(), steps_per_epoch=6)
elif os.environ["DATA"] == "short":  # two epochs of six batches, and one without
    import torch.utils.data

    class Rows(torch.utils.data.Dataset):
        drawn = 0

        def __len__(self):
            return 24

        def __getitem__(self, at):
            self.drawn += 1
            if self.drawn > 4 + 2 * 24:  # Keras looks at a first batch as the fit begins
                raise StopIteration
            return x[at], y[at]

    data = dict(x=torch.utils.data.DataLoader(Rows(), 4))
else:  # an epoch whose length is not known before its end
    kinds = tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))
    data = dict(x=tf.data.Dataset.from_generator(lambda: itertools.islice(rows(), 6), output_signature=kinds))
found = model.fit(**data, epochs=3, verbose=0, callbacks=[Last()])
found.history.pop("odd", None)
print(json.dumps({key: [float(one) for one in values] for key, values in found.history.items()}), flush=True)
"""


PYTHONS = {"older": "tf216", "tf_keras": "tf216"}
ALL, OF_TENSORFLOW = ["tensorflow", "keras2", "tf_keras", "older", "torch", "jax"], ["tensorflow", "keras2"]


@pytest.fixture
def restarts(receiver, tmp_path, other_python):
    def make(framework, step, data, at_once="1", returns=""):
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
        python = sys.executable if framework == "tensorflow" else other_python(PYTHONS.get(framework, framework))
        backend = {"torch": "torch", "jax": "jax"}.get(framework, "tensorflow")
        facts = {"FRAMEWORK": framework, "STEP": step, "DATA": data, "AT_ONCE": at_once, "STEP_RETURNS": returns}
        return Restarts(receiver, tmp_path, script, python, KERAS_BACKEND=backend, **facts)

    return make


@pytest.mark.parametrize("step", ["own", "usual"])
@pytest.mark.parametrize(
    ("framework", "data", "kills", "at_once"),
    [
        *((framework, data, ["term,1,5"], "1") for framework in ALL for data in ("arrays", "generator")),
        *((framework, "dataset", ["end,0"], "1") for framework in OF_TENSORFLOW),
        *((framework, "arrays", ["term,0,5", "term,1,5", "term,2,5"], "1") for framework in OF_TENSORFLOW),
        *((framework, "arrays", ["term,1,5"], "2") for framework in OF_TENSORFLOW),
    ],
)
def test_the_epoch_has_its_results(restarts, framework, step, data, kills, at_once):
    run = restarts(framework, step, data, at_once)
    plain = run.undisturbed()
    for number, kill in enumerate(kills):
        run.attempt(kill=kill, resume=number > 0)
    resumed = run.attempt(resume=True)
    assert resumed.rows[-1] == plain.rows[-1]
    assert resumed.rows == plain.rows[-len(resumed.rows) :]
    # Keras on JAX cannot end an epoch without a batch.
    assert [text[:36] for text in resumed.notes("inexact")] == ["fit 1 goes back to the beginning of "] * (
        framework == "jax"
    )


def test_an_epoch_without_data_has_no_results_after_a_resume_either(restarts):
    run = restarts("torch", "usual", "short")
    plain = run.undisturbed()
    run.attempt(kill="term,1,1")
    resumed = run.attempt(resume=True)
    # The epoch that ended is drawn again with what the dataset counts by now: its data end early, which ends no fit.
    assert [text[:15] for text in resumed.notes("inexact")] == ["fit 1 goes back"]
    assert resumed.rows == plain.rows[-len(resumed.rows) :]


def test_what_a_checkpoint_cannot_keep_of_a_step_is_said(restarts):
    run = restarts("torch", "own", "arrays", returns="odd")
    run.attempt(kill="term,0,5")
    resumed = run.attempt(resume=True)
    (said,) = resumed.notes("inexact")
    assert said.startswith(
        "fit 1: each batch of epoch 1 was trained, and a checkpoint cannot keep what its training step"
    )
