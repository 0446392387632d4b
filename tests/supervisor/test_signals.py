"""What a batch system sends stallguard reaches the training; without a handler it ends, as without stallguard."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from tests.guarded.runs import GUARDED, RUN, guard

LONG = 60  # seconds; only a broken test waits that long
SCRIPT = """
import multiprocessing, os, signal, stallguard, sys, threading, time
number, how = int(sys.argv[1]), sys.argv[2]
def handle(number, frame):
    print("saved", number, flush=True)
    if how == "ends":
        sys.exit(85)
if how != "none":
    signal.signal(number, handle)
if os.fork() == 0:  # a worker, which has no handler and must live on
    signal.signal(number, signal.SIG_DFL)
    while os.getppid() != 1:
        time.sleep(0.05)
    os._exit(0)
print("worker", flush=True)
while True:
    stallguard.beat()
    print("step", flush=True)
    time.sleep(0.05)
"""
NUMBERS = [
    getattr(signal, name)
    for name in ("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGRTMIN", "SIGRTMAX")
    if hasattr(signal, name)
]


@contextmanager
def training(place: Path, number: int, how: str) -> Iterator[subprocess.Popen[str]]:
    script = place / "script.py"
    script.write_text(SCRIPT)
    words = [*RUN, "--python", GUARDED, str(script), str(int(number)), how]
    env = {**os.environ, "STALLGUARD_HOME": str(place / "home")}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            reached(run, "worker", "step", "step")
            yield run
        finally:
            run.kill() if run.poll() is None else None


def reached(run: subprocess.Popen[str], *words: str) -> None:
    """Read what the training prints until each word came, in any order for the first two."""
    left = list(words)
    assert run.stdout is not None
    for line in run.stdout:
        if line.split()[0] in left:
            left.remove(line.split()[0])
        if not left:
            return
    raise AssertionError(left)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_handler_of_the_training_gets_it_and_the_training_goes_on(tmp_path: Path, number: int) -> None:
    with training(tmp_path, number, "saves") as run:
        run.send_signal(number)
        reached(run, "saved", "step", "step")
        run.send_signal(signal.SIGTERM)
        out, err = run.communicate(timeout=LONG)

    assert run.returncode == 128 + signal.SIGTERM, err
    assert "passed SIG" in err
    assert "saved" not in out, "once"


@pytest.mark.parametrize(("how", "code"), [("ends", 85), ("none", 128 + signal.SIGUSR1)])
def test_an_end_by_it_is_the_end_of_the_run(tmp_path: Path, how: str, code: int) -> None:
    with training(tmp_path, signal.SIGUSR1, how) as run:
        run.send_signal(signal.SIGUSR1)
        _, err = run.communicate(timeout=LONG)

    directory = RunDir((tmp_path / "home" / "runs" / "latest").resolve())
    end = run_files.outcome(directory)
    assert run.returncode == code, err
    assert end is not None
    assert (end.attempts, end.why.split(":")[0]) == (1, "signalled")
    assert run_files.state(directory) == "stopped"


def test_a_training_that_ends_itself_by_it_ends_as_without_stallguard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os, signal, stallguard; stallguard.beat(); os.kill(os.getpid(), signal.SIGUSR1)\n")
    run = guard(tmp_path / "home", str(script), cwd=tmp_path)

    assert run.code == 128 + signal.SIGUSR1
    assert run.outcome()["attempts"] == 1
