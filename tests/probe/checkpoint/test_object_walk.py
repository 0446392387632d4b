"""The script's objects that a library's objects hold are state: a schedule of an optimizer, a function of a layer."""

from __future__ import annotations

import sys
import types

import pytest

from stallguard.probe.checkpoint.object_state import ObjectBaseline
from stallguard.probe.checkpoint.object_walk import Walk
from tests.probe.checkpoint.restarts import Restarts

# Each of the script's objects counts its calls, and the training depends on the counts.
SCRIPT = """
import json, os, signal
import keras
import numpy as np

class Counting:
    def __init__(self):
        self.calls = 0
    def counted(self):
        self.calls += 1
        return 1 + self.calls / 100

class Schedule(Counting, keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.1 / self.counted()

class Regularizer(Counting, keras.regularizers.Regularizer):
    def __call__(self, weights):
        return 0.01 * self.counted() * (weights ** 2)[0, 0]

class Constraint(Counting, keras.constraints.Constraint):
    def __call__(self, weights):
        return weights / self.counted()

def growing():
    calls = 0
    def function(values):
        nonlocal calls
        calls += 1
        return values * (1 + calls / 100)
    return function

def distance(one, other):
    distance.calls += 1
    return ((one - other) ** 2) * (1 + distance.calls / 100)
distance.calls = 0

class OwnMetric(Counting, keras.metrics.Mean):
    def update_state(self, one, other, sample_weight=None):
        return super().update_state(self.counted())
    def __init__(self):
        keras.metrics.Mean.__init__(self, name="own")
        self.calls = 0

keras.utils.set_random_seed(7)
own = OwnMetric()
regularizer, constraint, schedule = Regularizer(), Constraint(), Schedule()
layer = keras.layers.Dense(3, kernel_regularizer=regularizer, kernel_constraint=constraint, activation=growing())
layer.noted = 0
optimizer = keras.optimizers.SGD(schedule)
metric = keras.metrics.MeanMetricWrapper(distance, name="distance")
model = keras.Sequential([keras.Input((2,)), layer, keras.layers.Lambda(growing()), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.05), "mse", metrics=[metric, own], run_eagerly=True)
hook = growing()
if hasattr(layer, "register_forward_hook"):
    layer.register_forward_hook(lambda module, inputs, output: hook(output))
beside = keras.Variable(np.ones(2, "float32")) if hasattr(keras, "Variable") else None
if beside is not None:
    optimizer.build([beside])

class Used(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        layer.noted += batch
        if beside is not None:
            optimizer.apply([keras.ops.convert_to_tensor(np.ones(2, "float32"))], [beside])
        if os.environ["KILL"] == "%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)

x = np.arange(24, dtype="float32").reshape(12, 2) / 24
history = model.fit(x, x[:, :1], batch_size=2, epochs=3, verbose=0, shuffle=False, callbacks=[Used()])
functions = [layer.activation, model.layers[1].function, hook]
print(json.dumps({
    "weights": [value.tolist() for value in model.get_weights()], "history": history.history,
    "calls": [one.calls for one in (regularizer, constraint, schedule, distance, own)], "noted": layer.noted,
    "functions": [function.__closure__[0].cell_contents for function in functions],
    "beside": None if beside is None else keras.ops.convert_to_numpy(beside).tolist(),
}))
"""


@pytest.mark.tf
@pytest.mark.parametrize("kill", ["1,2", "1,5"])
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "keras2"])
def test_they_go_on_where_they_were(receiver, tmp_path, other_python, backend, kill):
    interpreter = sys.executable if backend == "tensorflow" else other_python(backend)
    environment = {"KERAS_BACKEND": "tensorflow" if backend == "keras2" else backend}
    (tmp_path / "train.py").write_text(SCRIPT)
    script = Restarts(receiver, tmp_path, tmp_path / "train.py", interpreter, **environment)
    (plain,) = script.undisturbed().rows
    script.attempt(kill=kill)
    last = script.attempt(resume=True)
    assert last.notes() != [], last.heartbeat.notes
    assert last.notes("inexact") == []
    (found,) = last.rows
    assert {name: found[name] for name in plain if found[name] != plain[name]} == {}


class Slotted:
    __slots__ = ("count",)


@pytest.mark.parametrize("kind", [types.SimpleNamespace, Slotted])
def test_an_attribute_of_an_object_that_another_way_leads_to_first_is_not_gone(kind):
    held = kind()
    held.count = 0
    first, second = types.SimpleNamespace(held=None, gone=1), types.SimpleNamespace(held=held)
    before = Walk()
    before.enter(first, "first")
    before.enter(second, "second")
    baseline = ObjectBaseline(before)
    first.held, held.count = held, 5
    del first.gone
    after = Walk()
    after.enter(first, "first")
    after.enter(second, "second")
    assert "first.held.count" in after.slots
    assert baseline.gone(after) == ["first.gone"]
    del held.count
    without = Walk()
    without.enter(first, "first")
    without.enter(second, "second")
    assert baseline.gone(without) == ["first.gone", "second.held.count"]


def test_what_tensorflow_leaves_on_a_function_of_the_script_is_no_state():
    def called(x):
        return x

    called.count = 1
    called.ag_dnc_wrapper__ = object()  # by tf.py_function
    walked = Walk()
    walked.enter(called, "called")

    assert (set(walked.slots), walked.unkept) == ({"called.count"}, {})
