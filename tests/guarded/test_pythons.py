"""Each Python that a training can run: what is silent is judged, and only what replaced itself has left.

The interpreters are those on PATH and those of pyenv; STALLGUARD_PYTHONS names others, divided by colons.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stallguard.core.events import ProcessLeft

from .runs import Guarded, stallguard

pytestmark = pytest.mark.live

MINORS = range(9, 15)  # Python 3.9 to 3.14
BATCHES = 60
# A second passes between two looks at a program, so a loop of 1.2 s is known when it ends.
TRAIN = f"""
import ctypes, os, signal, subprocess, sys, time, stallguard
def train():
    for _ in range({BATCHES}):
        stallguard.beat()
        time.sleep(0.02)
train()
"""
HOLD = "ctypes.PyDLL(None).sleep(600)\n"  # with the lock of the interpreter: none of its threads can run
STOP = """
subprocess.Popen(["sh", "-c", "sleep 7; kill -CONT $0", str(os.getpid())])
os.kill(os.getpid(), signal.SIGSTOP)
train()
"""
CLOSE = "os.closerange(3, 256)\ntime.sleep(4)\nctypes.PyDLL(None).sleep(5)\ntrain()\n"  # as a daemon does
SHELL = 'os.execv("/bin/sh", ["sh", "-c", "sleep 15; echo uploaded"])\n'
FORK = "if os.fork() == 0:\n    os._exit(0)\nos.wait()\n"
FORK_AND_WARN = """
import warnings
for _ in range(3):
    warnings.warn("this is multi-threaded")  # Python shows it once for each place
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""
FORK_BESIDE_A_THREAD = f"import threading\nthreading.Thread(target=time.sleep, args=(1,)).start()\n{FORK}"
AGAIN = 'if "again" not in sys.argv:\n    os.execv(sys.executable, [sys.executable, *sys.argv, "again"])\n'


@functools.cache
def interpreter(minor: int) -> str | None:
    """Return the path of a Python 3.`minor` that runs, None if there is none."""
    name = f"python3.{minor}"
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = [path for path in os.environ.get("STALLGUARD_PYTHONS", "").split(":") if path]
    candidates = [*named, shutil.which(name), *sorted(versions.glob(f"3.{minor}.*/bin/{name}"), reverse=True)]
    for path in filter(None, candidates):
        code = f"import sys; raise SystemExit(sys.version_info[:2] != (3, {minor}))"
        if subprocess.run([path, "-c", code], check=False, capture_output=True).returncode == 0:
            return str(path)
    return None


@pytest.fixture(params=MINORS, ids=lambda minor: f"3.{minor}")
def python(request: pytest.FixtureRequest) -> str:
    found = interpreter(request.param)
    if found is None:
        pytest.skip(f"no Python 3.{request.param} on PATH, of pyenv or in STALLGUARD_PYTHONS")
    return found


def trained(home: Path, python: str, *words: str, body: str) -> Guarded:
    script = home / "train.py"
    script.write_text(TRAIN + body)
    return stallguard(home, "run", "--python", python, *words, str(script))


def left(run: Guarded) -> list[str]:
    return [event.how for event in run.events if isinstance(event, ProcessLeft)]


def test_a_held_interpreter_lock_is_a_stall(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, "--patience", "0.25", "--on-stall", "stop", body=HOLD)

    assert len(run.announced("training.stalled")) == 1, run.err
    assert "replaced" not in left(run)
    assert run.outcome()["batches"] == BATCHES


def test_a_stopped_process_is_stopped_and_its_batches_count_once(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, body=STOP)

    assert run.code == 0, run.err
    assert len(run.announced("training.stalled")) == 1, run.err
    assert "the process was stopped (SIGSTOP)" in run.err
    assert run.outcome()["batches"] == 2 * BATCHES
    assert left(run) == ["ended"]


def test_a_program_that_closes_all_descriptors_is_still_there(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, body=CLOSE)

    assert (run.code, run.outcome()["batches"]) == (0, 2 * BATCHES), run.err
    assert left(run) == ["ended"]


def test_what_became_another_program_has_left_and_is_no_stall(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, "--patience", "0.25", "--on-stall", "stop", body=SHELL)

    assert (run.code, run.out) == (0, b"uploaded\n"), run.err
    assert left(run) == ["replaced"]
    assert run.announced("training.stalled") == []


def test_a_program_that_began_again_is_counted_anew(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, body=AGAIN)

    assert (run.code, run.outcome()["batches"]) == (0, 2 * BATCHES), run.err
    assert left(run) == ["replaced", "ended"]


@pytest.mark.parametrize(
    "body", [FORK, FORK_BESIDE_A_THREAD, FORK_AND_WARN], ids=["alone", "beside a thread", "beside a warning"]
)
def test_a_script_that_forks_is_warned_of_its_own_threads_only(tmp_path: Path, python: str, body: str) -> None:
    """From Python 3.12 on a fork in a process with threads is a warning; the probe's thread is none of the script's."""
    (tmp_path / "plain.py").write_text(TRAIN.replace(", stallguard", "").replace("stallguard.beat()", "pass") + body)
    plain = subprocess.run([python, str(tmp_path / "plain.py")], capture_output=True, text=True, check=True)

    run = trained(tmp_path, python, body=body)

    assert run.code == 0, run.err
    assert run.err.count("is multi-threaded") == plain.stderr.count("is multi-threaded"), run.err
