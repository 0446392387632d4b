"""A main thread that comes to one instruction again and again does not wait there; one that stays there does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.probe.main_thread import Progress

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import ctypes, inspect, json, sys, threading, time, _thread
from stallguard.probe import libraries, outbox, wire
from stallguard.probe.beats import Beats
from stallguard.probe.wait_evidence import WaitEvidence
libraries.read("torch")
class Array:
    item = staticmethod(time.sleep)
beats = Beats(outbox.begin(outbox.private(), 1, 2, 3))
beats._thread = threading.main_thread().ident
waits, seen, done = WaitEvidence(beats), [], threading.Event()
def watch():
    while not done.wait(0.05):
        now = time.monotonic_ns()
        waits.look(sys._current_frames(), now)
        slots = beats.slots
        seen.append([wire.WAITS[slots[wire.SLOT["wait"]]], (now - slots[wire.SLOT["wait_ns"]]) / 1e9])
thread = threading.Thread(target=watch)
def evaluate():
    for _ in range(SIZE[0]):
        Array.item(SIZE[1])
SIZE = json.loads(sys.argv[1])
thread.start()
evaluate()
done.set()
thread.join()
print(json.dumps([age for kind, age in seen if kind == "device"]))
"""


def longest(python: str, times: int, seconds: float) -> float:
    """Return for how long the main thread seemed to wait for a value that it read so often."""
    done = subprocess.run(
        [python, "-c", SCRIPT, json.dumps([times, seconds])], cwd=ROOT, capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    return max(json.loads(done.stdout), default=0.0)


@pytest.mark.costly
def test_an_evaluation_that_reads_a_value_of_each_batch_is_no_wait_and_one_value_that_does_not_come_is(
    any_python: str,
) -> None:
    assert longest(any_python, 1, 1.5) > 1.0
    assert longest(any_python, 75, 0.02) < 0.5


def test_another_thread_is_not_asked_and_a_python_without_the_function_is_borne(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not Progress().has_run(1)
    main = sys.modules["threading"].main_thread().ident
    asked = Progress()
    monkeypatch.setitem(sys.modules, "ctypes", object())  # type: ignore[arg-type]  # what it finds
    assert not asked.has_run(main)
    monkeypatch.delitem(sys.modules, "ctypes")
    assert not Progress().has_run(main)
