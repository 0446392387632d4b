"""Torch: each step of an optimizer is a beat, and Keras trains on it as without the probe."""

from __future__ import annotations

import json

from tests.probe.receiver import Receiver

from .scenarios import guarded, keras_3_beats_and_dispatches_as_before, table


def test_keras_3_beats_and_dispatches_as_before(other_python):
    keras_3_beats_and_dispatches_as_before(other_python, "torch")


def test_plain_torch_beats(other_python):
    heartbeat = guarded(other_python("torch"), "keras_scenarios.py", "torch_loop", "torch_compiled")
    assert table(heartbeat) == {"torch_loop": (20, 0, 1, "torch"), "torch_compiled": (20, 0, 0, "torch")}
    assert {"torch_step", "torch_loader", "save"} <= set(heartbeat.hello()["hooks"])
    assert heartbeat.last()["input_ns"] > 0


def test_a_probe_that_leaves_takes_its_hook_of_every_optimizer_along(other_python):
    turns = """
import json, sys
import torch
probe = sys.modules["_stallguard_probe"].probe
weight = torch.nn.Parameter(torch.ones(1))
optimizer, found = torch.optim.SGD([weight], 0.1), []
for turn in (None, probe.patches.take_out, probe.patches.put_back, probe.withdraw):
    turn and turn()
    before = probe.context.get("beats")
    for _ in range(5):
        weight.sum().backward()
        optimizer.step()
    found.append(probe.context.get("beats") - before)
print(json.dumps([found, len(sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks)]))
"""
    with Receiver() as receiver:
        found = receiver.run([other_python("torch"), "-c", turns], 600)
    assert found.code == 0, found.err
    assert json.loads(found.out.splitlines()[-1]) == [[5, 0, 5, 0], 0]
