"""A part of the bench `compat` holds in the suite, and it sees the smallest difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from compat import difference, probed

BENCH = Path(__file__).parents[1] / "scripts" / "benches" / "compat.py"
RUNNING = "{}.{}".format(*sys.version_info)


def test_the_first_difference_is_named_with_its_place():
    one = {"events": [["on_train_begin", [{}]]], "loss": [(0.1).hex()]}
    assert difference(one, one) == ""
    assert difference(one, {**one, "loss": [(0.1 + 2e-17).hex()]}).startswith(".loss[0]")
    assert difference(one, {**one, "events": [["on_train_end", [{}]]]}).startswith(".events[0][0]")
    assert "1 entries became 0" in difference(one, {**one, "events": []})
    assert difference({"a": 1, "b": 2}, {"b": 2, "a": 1})  # the order of logs counts
    assert difference([1], [1.0])


@pytest.mark.live
def test_a_loop_by_hand_is_the_same_in_the_python_that_runs_this(tmp_path):
    row = probed(RUNNING, tmp_path / "python")
    if row.differs is None:
        pytest.skip(f"python{RUNNING} is in no usual place")
    assert row.differs == ""


@pytest.mark.tf
@pytest.mark.live
def test_hooks_stops_and_callbacks_are_the_same_with_tensorflow():
    done = subprocess.run(
        [sys.executable, BENCH, "--only", "tensorflow", "--groups", "hooks,stops,callbacks"],
        check=False, capture_output=True, text=True, timeout=2000,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].endswith("all 1 goals hold")
