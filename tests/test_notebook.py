"""`%load_ext stallguard` in real kernels: counted, judged, shown in the cell, and never ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.errors import GAVE_UP
from stallguard.storage import paths, run_files

DRIVER = Path(__file__).with_name("driven_kernel.py")
LOAD = "%load_ext stallguard"
TRAIN = "import time, stallguard\nfor i in range(200): time.sleep(0.03); stallguard.beat()"
WAIT = "import threading\ndef wait(i):\n    if i == 60:\n        threading.Event().wait()"
HANG = "for i in range(100):\n    time.sleep(0.02); stallguard.beat()\n    wait(i)"
LONG = 30.0  # seconds; only a broken test waits that long


@pytest.fixture
def drive(other_python, tmp_path, monkeypatch):
    """Return a function from steps to what they showed; the runs lie in a home of their own."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    interpreter = other_python("jupyter")

    def driven(*steps):
        found = {"TMPDIR": str(tmp_path), "IPYTHONDIR": str(tmp_path / "i"), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
        given = json.dumps([("one", *step) if len(step) == 2 else step for step in steps])
        done = subprocess.run(
            [interpreter, str(DRIVER)], input=given, capture_output=True, text=True, timeout=300, check=False,
            cwd=tmp_path, env={**os.environ, **found, "KERAS_BACKEND": "torch"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return driven


def runs(count):
    """Return the runs, the first one first, once all have ended."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        found = sorted(paths.list_runs(), key=lambda run: run.id)
        if len(found) == count and all(run_files.outcome(run) for run in found):
            return found
        time.sleep(0.05)
    raise AssertionError([(run.id, run_files.outcome(run)) for run in paths.list_runs()])


def cell(text):
    return "cell", text


def test_a_stalled_cell_is_named_and_interrupted_on_order_and_a_pause_between_cells_is_no_stall(drive):
    _, loaded, again, trained, _, status, _, hung, *_, after = drive(
        cell(WAIT), cell(LOAD), cell(LOAD), cell(TRAIN), ("sleep", "25"), cell("%stallguard status"),
        cell("%stallguard interrupt on"), cell(HANG), cell("%reload_ext stallguard"), cell(TRAIN),
        cell("%unload_ext stallguard\nprint(stallguard.guarded(), [t.name for t in threading.enumerate()])"),
    )  # fmt: skip
    assert "watching this kernel" in loaded
    assert "already loaded" in again
    assert "[display_data] stallguard: " in trained
    assert trained.count("display_data]") <= 7  # of 6 s, at most once a second
    assert "stallguard: 200 batches" in status
    assert "stalled" not in status
    assert "it hangs at cell 1, line 4 in wait" in hung
    assert "suggestion: " in hung
    assert "KeyboardInterrupt" in hung
    assert after.startswith("False")
    assert "'stallguard'" not in after
    first, second = (run_files.outcome(run) for run in runs(2))
    assert (first.code, first.incidents, first.batches) == (0, 1, 261)
    assert (second.code, second.incidents, second.batches) == (0, 0, 200)
    assert "the process goes on" in second.why


def test_a_short_cell_and_one_that_does_not_train_show_nothing(drive):
    shown = drive(cell(LOAD), cell("import time, stallguard\nstallguard.beat()"), cell("time.sleep(5)"))
    assert shown[1:] == ["", ""]


def test_a_library_that_was_imported_before_is_counted(drive):
    code = (
        "w = torch.nn.Linear(2, 1); o = torch.optim.SGD(w.parameters(), 0.1)\n"
        "for _ in range(30):\n    o.zero_grad(); w(torch.ones(4, 2)).sum().backward(); o.step()"
    )
    status = drive(cell("import torch"), cell(LOAD), cell(code), cell("%stallguard status"))[-1]
    assert "stallguard: 30 batches" in status


def test_a_kernel_that_dies_is_an_incident_with_its_reason(drive):
    drive(cell(LOAD), ("begin", TRAIN), ("sleep", "3"), ("kill", ""))
    end = run_files.outcome(runs(1)[0])
    assert (end.code, end.crashes) == (GAVE_UP, 1)
    assert "killed, or it crashed" in end.why


def test_a_kernel_that_is_restarted_ends_its_run_and_loads_the_next(drive):
    shown = drive(cell(LOAD), cell(TRAIN), ("restart", ""), cell(LOAD))
    assert "watching this kernel" in shown[-1]
    first, second = (run_files.outcome(run) for run in runs(2))
    assert (first.code, first.crashes or 0, first.batches) == (0, 0, 200)
    assert "has ended" in first.why
    assert second.batches == 0


def test_a_killed_watch_is_said_and_the_kernel_goes_on(drive):
    kill = "import os, stallguard.notebook as n\nos.kill(n._loaded[0]._pid, 9)"
    *_, trained, status, again = drive(
        cell(LOAD), cell(kill), cell(TRAIN + "\nprint(i)"), cell("%stallguard"), cell("%reload_ext stallguard")
    )
    assert "199" in trained
    assert "not watched any more" in status
    assert "watching this kernel" in again


def test_two_notebooks_are_two_runs(drive):
    hang = ("two", "begin", TRAIN)
    drive(("one", *cell(LOAD)), ("two", *cell(LOAD)), hang, ("one", *cell(TRAIN)), ("two", *cell("1")))
    assert [run_files.outcome(run).batches for run in runs(2)] == [200, 200]


def test_a_kernel_that_is_guarded_already_gets_no_second_watch(other_python, tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    code = "import stallguard\nprint(stallguard.guarded())\nstallguard.load_ipython_extension(None)"
    run = [sys.executable, "-m", "stallguard", "run", other_python("jupyter"), "-c", code]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "True" in done.stdout
    assert "stallguard watches this kernel already" in done.stderr
    assert len(runs(1)) == 1
