"""Losses and metrics that stop being finite, in any Keras; prints the scenarios in their order."""

import os
import sys

import numpy as np

keras = __import__(os.environ.get("KERAS_OF_TEST", "keras"))
X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


class NanMetric(keras.metrics.Metric):
    """The mask of a script that lets nothing through."""

    def update_state(self, *_, **__):
        pass

    def result(self):
        return Y[0, 0] * float("nan")


def model(optimizer, **more):
    """Return a small compiled model."""
    made = keras.Sequential([keras.layers.Dense(1)])
    made.compile(optimizer, "mse", **more)
    return made


def diverges():
    model(keras.optimizers.SGD(1e9)).fit(X, Y, epochs=4, batch_size=16, verbose=0)


def skipped_steps():
    """Mixed precision: the first gradients overflow by design, and those steps are skipped."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        scaled = getattr(keras.optimizers, "LossScaleOptimizer", None) or keras.mixed_precision.LossScaleOptimizer
        model(scaled(keras.optimizers.SGD(1e-3), initial_scale=2.0**24)).fit(X, Y, epochs=2, batch_size=16, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def one_metric():
    model("sgd", metrics=[NanMetric(name="masked")]).fit(X, Y, epochs=2, batch_size=16, verbose=0)


def validation():
    model("sgd").fit(X, Y, epochs=2, batch_size=16, verbose=0, validation_data=(X * np.nan, Y))


def ended_by_the_script():
    callbacks = [keras.callbacks.TerminateOnNaN()]
    model(keras.optimizers.SGD(1e9)).fit(X, Y, epochs=4, batch_size=16, verbose=0, callbacks=callbacks)


def single_batches():
    made = model(keras.optimizers.SGD(1e9))
    for _ in range(20):
        made.train_on_batch(X, Y)


for scenario in (diverges, skipped_steps, one_metric, validation, ended_by_the_script, single_batches):
    scenario()
    print(scenario.__name__, flush=True)
sys.stdout.flush()
