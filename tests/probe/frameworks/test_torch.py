"""Torch: each step of an optimizer is a beat, and Keras trains on it as without the probe."""

from __future__ import annotations

from .scenarios import guarded, keras_3_beats_and_dispatches_as_before, table


def test_keras_3_beats_and_dispatches_as_before(other_python):
    keras_3_beats_and_dispatches_as_before(other_python, "torch")


def test_plain_torch_beats(other_python):
    heartbeat = guarded(other_python("torch"), "keras_scenarios.py", "torch_loop", "torch_compiled")
    assert table(heartbeat) == {"torch_loop": (20, 0, 1, "torch"), "torch_compiled": (20, 0, 0, "torch")}
    assert {"torch_step", "torch_loader", "save"} <= set(heartbeat.hello()["hooks"])
    assert heartbeat.last()["input_ns"] > 0
