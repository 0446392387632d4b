"""Trains under the probe with a truly smaller batch, or tries to; one line of JSON says what was seen.

    really_child.py CASE...     {case: what the script saw, and what its training came to}

KERAS names the module.
"""

import json
import os
import sys
from importlib import import_module

import numpy as np

keras = import_module(os.environ.get("KERAS", "keras"))
ROWS = 96
random = np.random.RandomState(0)
x = random.rand(ROWS, 4).astype("float32")
y = x[:, :1] * 2


class Seen(keras.callbacks.Callback):
    """Counts batches, and remembers the rate that a callback sees."""

    def __init__(self):
        super().__init__()
        self.batches, self.rates = 0, []

    def on_train_batch_end(self, batch, logs=None):
        """Count."""
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        """Look at the rate as ReduceLROnPlateau does."""
        rate = self.model.optimizer.learning_rate
        self.rates.append(round(float(rate.numpy() if hasattr(rate, "numpy") else rate), 6))


def network(optimizer):
    """Return a model whose weights begin at zero."""
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(optimizer, "mse", jit_compile=False)
    return model


def announced(model, data, **options):
    """Train one epoch in the script's order, and tell of it."""
    seen = Seen()
    history = model.fit(*data, epochs=1, shuffle=False, verbose=0, callbacks=[seen], **options)
    weights = [float(v) for v in np.concatenate([w.ravel() for w in model.get_weights()])]
    return {"batches": seen.batches, "rates": seen.rates, "weights": weights, "steps": history.params["steps"]}


def sgd(rate=0.1):
    """Return an optimizer without memory."""
    return keras.optimizers.SGD(rate)


def schedule():
    """Return a rate that does not change, but is computed each step."""
    return keras.optimizers.schedules.PiecewiseConstantDecay([10**6], [0.1, 0.01])


def pipeline():
    """Return the rows as a pipeline of the script's own."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).batch(32, drop_remainder=True)


def after_slices():
    """A model that was fitted in slices before."""
    model = network(sgd())
    model.fit(pipeline(), epochs=1, verbose=0)
    model.set_weights([np.zeros_like(w) for w in model.get_weights()])
    return announced(model, (x, y), batch_size=32)


CASES = {
    "arrays": lambda: announced(network(sgd()), (x, y), batch_size=32),
    "default": lambda: announced(network(sgd()), (x, y)),
    "nested": lambda: announced(network(sgd()), ([x], [y]), batch_size=32),
    "steps": lambda: announced(network(sgd()), (x, y), batch_size=32, steps_per_epoch=2),
    "schedule": lambda: announced(network(sgd(schedule())), (x, y), batch_size=32),
    "adam": lambda: announced(network(keras.optimizers.Adam(0.1)), (x, y), batch_size=32),
    "legacy": lambda: announced(network(keras.optimizers.legacy.SGD(0.1)), (x, y), batch_size=32),
    "pipeline": lambda: announced(network(sgd()), (pipeline(),)),
    "after_slices": after_slices,
}
context = sys.modules["_stallguard_probe"].probe.context
settings = context.settings
context.settings = settings.replace(slices=1)
result = {  # the yardstick: what the script's own hand would have changed
    "sgd by hand": announced(network(sgd(0.05)), (x, y), batch_size=16),
    "adam by hand": announced(network(keras.optimizers.Adam(0.05)), (x, y), batch_size=16),
    "whole": announced(network(sgd()), (pipeline(),) if "pipeline" in sys.argv else (x, y)),
}
context.settings = settings
result.update((name, CASES[name]()) for name in sys.argv[1:])
print(json.dumps(result))
