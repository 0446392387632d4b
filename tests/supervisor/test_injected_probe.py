"""A process that runs already gets the probe, on Python 3.14; what cannot get it says why, and is unharmed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor import injected_probe
from tests import command_line
from tests.guarded.test_pythons import interpreter

FOR_EVER = "        lock.acquire()  # for ever"
LONG = 60.0  # seconds; only a broken test waits that long
BEATS = """
import os, sys, time
names = set(globals())
for step in range(1 << 30):
    if step == 1 and "lock" in sys.argv:
        while "STALLGUARD_PROBE" not in os.environ:
            time.sleep(0.01)
        for _ in range(100):
            sys.modules["stallguard"].beat()
            time.sleep(0.02)
        import threading
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()  # for ever
    if os.path.exists("end"):
        break
    import stallguard
    stallguard.beat()
    time.sleep(0.02)
print(sorted(set(globals()) - names - {"names", "step", "stallguard"}), "STALLGUARD_PROBE" in os.environ,
      [one for one in sys.modules if "_stallguard_probe" in one], len(sys.meta_path))
"""


def until(is_true, what):
    end = time.monotonic() + LONG
    while not is_true():
        assert time.monotonic() < end, f"{what} was awaited for {LONG:g} s"
        time.sleep(0.05)


@pytest.fixture
def newest():
    found = interpreter(14)
    if found is None:
        pytest.skip("no Python 3.14, which takes a probe while it runs, on PATH, of pyenv or in STALLGUARD_PYTHONS")
    return found


@pytest.fixture
def started(tmp_path):
    """Start a script of beats, unguarded; and the command that watches it."""
    processes = []
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(command_line.ROOT)}

    def start(python, *words):
        (tmp_path / "train.py").write_text(BEATS)
        # Isolated as far as a script allows: no probe of a run that runs this test.
        plain = {name: value for name, value in env.items() if not name.startswith("STALLGUARD")}
        with (tmp_path / "train.log").open("wb") as out:
            made = subprocess.Popen([python, *words[:-1], "train.py", words[-1]], cwd=tmp_path, env=plain, stdout=out,
                                    stderr=out)  # fmt: skip
        processes.append(made)
        return made

    def watch(pid, *words):
        command = [sys.executable, "-m", "stallguard", "watch", str(pid), "--set", "notify.desktop=off", *words]
        made = subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
        processes.append(made)
        return made

    yield start, watch
    for process in processes:
        with process:
            process.kill()
    for run in map(RunDir, (tmp_path / "runs").glob("2*")):
        if (asked := run_files.asked(run)) is not None:
            paths.remove_sockets(Path(asked.control).parent)  # of a watch that was killed


def run_of(home):
    return next(iter(sorted(map(RunDir, (home / "runs").glob("2*")), key=lambda run: run.id, reverse=True)), None)


def journal(home):
    run = run_of(home)
    return run.journal.read_text() if run is not None and run.journal.exists() else ""


def batches(home):
    env = {**os.environ, "STALLGUARD_HOME": str(home), "HOME": str(home)}
    shown = command_line.stallguard("status", "--json", env=env, cwd=home).stdout
    return json.loads(shown).get("batches", 0) if shown else 0


@pytest.mark.waits
def test_its_batches_are_counted_and_the_end_of_the_watch_takes_the_probe_out(newest, started, tmp_path):
    start, watch = started
    training = start(newest, "plain")
    for _ in range(2):  # a second watch finds a process without a probe
        watching = watch(training.pid)
        until(lambda: batches(tmp_path) > 20, "a count")
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=LONG)
        assert watching.returncode == 0, said
        assert "the probe is in the process" in said
        assert run_files.outcome(run_of(tmp_path)).why == "the watch ended, and the process goes on"
        assert training.poll() is None
        time.sleep(1)
    (tmp_path / "end").touch()
    assert training.wait(LONG) == 0
    env = {**os.environ, "PYTHONPATH": str(command_line.ROOT)}
    plain = subprocess.run([newest, "train.py", "x"], cwd=tmp_path, env=env, capture_output=True, check=True)
    assert (tmp_path / "train.log").read_bytes() == plain.stdout


@pytest.mark.waits
def test_a_lock_is_judged_with_its_line_and_the_process_is_left_alone(newest, started, tmp_path):
    start, watch = started
    training = start(newest, "lock")
    watching = watch(training.pid, "--patience", "0.25")
    until(lambda: '"evidence.collected"' in journal(tmp_path), "the evidence")

    assert f"train.py:{1 + BEATS.split(chr(10)).index(FOR_EVER)}" in journal(tmp_path)
    assert training.poll() is None
    watching.kill()


@pytest.mark.waits
def test_a_watch_that_was_killed_leaves_a_probe_that_the_next_one_replaces(newest, started, tmp_path):
    start, watch = started
    training = start(newest, "plain")
    first = watch(training.pid)
    until(lambda: batches(tmp_path) > 5, "a count")
    first.kill()
    first.wait()
    old = run_of(tmp_path).id
    watching = watch(training.pid)
    until(lambda: run_of(tmp_path).id != old and batches(tmp_path) > 5, "a count of the second")
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=LONG)

    assert (watching.returncode, training.poll()) == (0, None), said


@pytest.mark.waits
def test_a_process_that_refuses_it_is_watched_from_outside(newest, started, tmp_path):
    start, watch = started
    training = start(newest, "-X", "disable-remote-debug", "plain")
    watching = watch(training.pid)
    until(lambda: "watch.limits" in journal(tmp_path), "the refusal")
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=LONG)

    assert "cannot look inside the training" in said
    assert "Remote debugging is not enabled" in said
    assert training.poll() is None


@pytest.mark.waits
def test_no_probe_is_loaded_if_none_is_wanted(newest, started, tmp_path):
    start, watch = started
    training = start(newest, "plain")
    watching = watch(training.pid, "--no-probe")
    until(lambda: "watch.limits" in journal(tmp_path), "its limits")
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=LONG)
    (tmp_path / "end").touch()

    assert training.wait(LONG) == 0
    assert not list(run_of(tmp_path).probe.iterdir())


@pytest.mark.parametrize("minor", [10, 12, 13])
def test_an_older_python_says_that_it_is_too_old(minor):
    older = interpreter(minor)
    if older is None:
        pytest.skip(f"no Python 3.{minor} on PATH, of pyenv or in STALLGUARD_PYTHONS")
    with subprocess.Popen([older, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert f"Python 3.{minor}, and only 3.14" in injected_probe.refusal(process.pid)


def test_nothing_is_started_for_a_program_that_is_not_python():
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert injected_probe.refusal(process.pid) == "it is not known to be Python"


def test_a_main_thread_that_runs_no_python_is_told_of_and_an_error_inside_too(tmp_path, monkeypatch):
    monkeypatch.setattr(injected_probe, "WAITS", 0.0)
    assert "has run no Python code" in injected_probe.await_entry(7, tmp_path, lambda: False)
    monkeypatch.setattr(injected_probe, "WAITS", LONG)
    Path(tmp_path / "7.refused").write_text("RuntimeError: it has a probe already")
    assert "a probe already" in injected_probe.await_entry(7, tmp_path, lambda: False)
    Path(tmp_path / "7.page").touch()
    assert injected_probe.await_entry(7, tmp_path, lambda: False) == ""
