"""The walk's training on the GPU under stallguard: its verdicts, and its parts with a small script in its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELD, FAILED, UNASKED = "held", "did not hold", "not asked"
ITEMS = [
    {"name": "stacks", "state": "collected", "seconds": 0.1},
    {"name": "sample", "state": "collected", "seconds": 4.2},
    {"name": "log", "state": "late", "seconds": 9.0, "why": "it did not end in time"},
]
LOAD = """
import os, sys, threading, time
import stallguard
dumped, long = sys.argv[1], float(sys.argv[2])
print("gpus 1", flush=True)
def train(steps):
    for _ in range(steps):
        stallguard.beat()
        time.sleep(0.02)
while not os.path.exists(dumped):
    train(20)
print("long step", flush=True)
time.sleep(long)
print("long step took %.1f s" % long, flush=True)
train(20)
print("blocked", flush=True)
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


def test_a_dump_needs_stacks_and_names_the_seconds_of_each_item():
    from mac import verdicts_steps as say

    row = say.dump(ITEMS, 0, 9.5)
    assert row.verdict == HELD
    assert row.figure == "exit code 0, 3 items in 9.5 s: log 9.0 s, sample 4.2 s, stacks 0.1 s"
    assert row.means.endswith("without: log")
    assert say.dump(ITEMS, 1, 9.5).verdict == FAILED
    assert say.dump(ITEMS[1:], 0, 9.5).verdict == FAILED
    assert say.dump(ITEMS, 0, 90.0).verdict == FAILED
    assert say.dump([], 124, 180.0).verdict == FAILED


def test_a_long_step_on_the_gpu_alone_must_be_no_stall():
    from mac import verdicts_steps as say

    assert say.long_step(180.0, 4.0, 0, done=True).verdict == HELD
    assert say.long_step(180.0, 4.0, 1, done=True).verdict == FAILED
    assert say.long_step(180.0, 170.0, 0, done=True).verdict == UNASKED, "the processor worked too"
    assert say.long_step(540.0, 4.0, 0, done=False).verdict == FAILED


def test_a_blocked_step_must_be_a_stall_while_windowserver_works():
    from mac import verdicts_steps as say

    row = say.blocked(14.0, 0.25, 0.0, called=True)
    assert (row.verdict, row.figure) == (HELD, "a stall after 14 s; GPU time: WindowServer 250 ms, the training 0 ms")
    assert say.blocked(180.0, 0.25, 0.0, called=False).verdict == FAILED
    assert say.blocked(14.0, 0.0, 0.0, called=True).verdict == UNASKED
    assert say.blocked(14.0, None, None, called=True).verdict == UNASKED


def test_gpu_time_is_that_of_windowserver_and_of_the_training(monkeypatch):
    from mac import steps
    from mac.steps import Clients

    before, after = Clients(1_000_000_000, None), Clients(1_500_000_000, 3)
    assert steps._moved(before, after, lambda one: one.window_server) == 0.5
    assert steps._moved(before, after, lambda one: one.training) is None


@pytest.mark.live
@pytest.mark.waits
def test_a_training_is_taken_through_its_dump_its_long_step_and_its_block(tmp_path, monkeypatch):
    from mac import steps
    from mac.scene import Scene

    load = tmp_path / "load.py"
    load.write_text(LOAD)
    monkeypatch.setattr(steps, "LOAD", load)
    monkeypatch.setattr(steps, "LONG", 3.0)
    monkeypatch.setattr(steps, "_clients", lambda _scene, _one: steps.Clients(os.times().elapsed * 1e9, 0))
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    scene = Scene(tmp_path, env, lambda _line: None)
    rows = list(steps.checks(scene))

    assert [(row.check, row.verdict) for row in rows] == [
        ("dump of a training", HELD), ("GPU-only step", HELD), ("blocked step", HELD),
    ], rows  # fmt: skip
    assert "stacks 0." in rows[0].figure
    assert "called a stall 0 times" in rows[1].figure
    assert '"items"' in scene.files["dump-manifest.json"]
