"""The process beside a kernel: what it says first, and its one order."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time

import pytest

from stallguard.probe.settings import of
from stallguard.storage import paths, run_files

LONG = 30.0  # seconds; only a broken test waits that long


def line(pipe):
    assert select.select([pipe], [], [], LONG)[0]
    return pipe.readline()


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A process that is watched; any will do.  The runs lie in a home of their own."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()
    process.stdin.close()


def beside(pid):
    words = [sys.executable, "-P", "-m", "stallguard.supervisor.beside_kernel", str(pid), "train.ipynb"]
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def gone(pid):
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def ended(watch, pid):
    watch.stdout.read()
    watch.stdin.close()
    watch.stdout.close()
    assert gone(pid)


def test_it_says_where_the_probe_reports_and_leaves_on_order(kernel):
    watch = beside(kernel.pid)
    begun = json.loads(line(watch.stdout))
    assert watch.wait(LONG) == 0  # it is no child of the kernel
    settings = of({"STALLGUARD_PROBE": begun["settings"]})
    assert settings.token
    assert (settings.checkpoints, settings.seed, settings.slices) == ("", "", 1)

    watch.stdin.write("leave\n")
    watch.stdin.flush()
    ended(watch, begun["pid"])
    assert kernel.poll() is None
    run = paths.list_runs()[0]
    assert run.id == begun["run"]
    assert run_files.outcome(run).code == 0


def test_the_end_of_the_kernel_is_its_end(kernel):
    watch = beside(kernel.pid)
    begun = json.loads(line(watch.stdout))
    watch.wait(LONG)
    kernel.kill()
    kernel.wait()
    ended(watch, begun["pid"])
    assert "has ended" in run_files.outcome(paths.list_runs()[0]).why


def test_a_kernel_that_is_gone_is_said(kernel):
    kernel.kill()
    kernel.wait()
    watch = beside(kernel.pid)
    assert line(watch.stdout).strip()
    watch.wait(LONG)
    watch.stdin.close()
    watch.stdout.close()
