"""JAX: Keras trains on it as without the probe, and its first batch is seen compiling."""

from __future__ import annotations

from .scenarios import keras_3_beats_and_dispatches_as_before


def test_keras_3_beats_and_dispatches_as_before(other_python):
    heartbeat = keras_3_beats_and_dispatches_as_before(other_python, "jax")

    assert "first run" in heartbeat.phases()
