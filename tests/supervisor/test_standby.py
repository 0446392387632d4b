"""kill -9 of the supervisor: the training outlives it, whatever it prints and wherever that goes."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import lives
from tests.guarded.runs import GUARDED, RUN

pytestmark = pytest.mark.live

LINES = 60
IN_FLIGHT = 9  # of 8 KB, in a chunk of 64 KiB
# More than a pipe holds (256 KiB), so that a pipe that is only kept open would block it.
SCRIPT = f"""
import sys, time
from pathlib import Path
for number in range({LINES}):
    sys.stdout.write(f"out {{number}} {{'x' * 8000}}\\n")
    sys.stdout.flush()
    sys.stderr.write(f"err {{number}}\\n")
    sys.stderr.flush()
    time.sleep(0.05)
Path("ended").write_text("yes")
"""


def eventually(holds, seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


class Reader:
    """Takes all that comes from a descriptor, until its end."""

    def __init__(self, descriptor: int) -> None:
        self.data = b""
        self._thread = threading.Thread(target=self._run, args=(descriptor,))
        self._thread.start()

    def _run(self, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, 1 << 16)
            except OSError:  # a terminal without another end
                data = b""
            if not data:
                break
            self.data += data
        os.close(descriptor)

    def all(self) -> bytes:
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self.data


def guarded(folder: Path, out: int, err: int) -> subprocess.Popen[bytes]:
    (folder / "train.py").write_text(SCRIPT)
    return subprocess.Popen(
        [*RUN, "--python", GUARDED, "train.py"], cwd=folder, stdout=out,
        stderr=err, stdin=subprocess.DEVNULL,
        env={**os.environ, "STALLGUARD_HOME": str(folder / "home")},
    )  # fmt: skip


def numbers(log: bytes) -> list[int]:
    """Return the numbers of the lines of standard output in a log of both streams."""
    return [int(number) for number in re.findall(rb"out (\d+) x", re.sub(rb"err \d+\r?\n", b"", log))]


def assert_outlived(folder: Path) -> None:
    """What the supervisor had read and not yet passed on is lost with it: IN_FLIGHT lines at most.

    A chunk of standard output ends anywhere, so a line of standard error can stand within one of its lines.
    """
    run = RunDir((folder / "home/runs/latest").resolve())
    attempt = run_files.recall_attempt(run)
    assert attempt is not None
    shutil.rmtree(attempt.place)  # the sockets, which nothing removes then
    assert eventually((folder / "ended").exists)
    assert eventually(lambda: LINES - 1 in numbers(run.output.read_bytes()))
    kept = numbers(run.output.read_bytes())
    assert kept == sorted(set(kept))
    assert len(kept) >= LINES - IN_FLIGHT
    assert eventually(lambda: not lives(attempt.process))


@pytest.mark.parametrize("kind", ["pipe", "terminal", "file"])
def test_a_training_that_prints_goes_on_and_its_output_too(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "printed"
    if kind == "file":
        out, reader = os.open(path, os.O_WRONLY | os.O_CREAT), None
    else:
        ours, out = pty.openpty() if kind == "terminal" else os.pipe()
        reader = Reader(ours)
    with guarded(tmp_path, out, out) as run:
        os.close(out)
        assert eventually(lambda: b"out 5 " in (reader.data if reader else path.read_bytes()))
        run.send_signal(signal.SIGKILL)
    assert_outlived(tmp_path)
    if reader is None:
        assert eventually(lambda: f"err {LINES - 1}".encode() in path.read_bytes())
    printed = reader.all() if reader else path.read_bytes()  # the end comes: nothing holds the descriptor any more
    assert min(printed.count(b"out "), printed.count(b"err ")) >= LINES - IN_FLIGHT


def test_also_if_the_reader_of_the_output_is_killed_with_it(tmp_path: Path) -> None:
    ours, out = os.pipe()
    with guarded(tmp_path, out, subprocess.DEVNULL) as run:
        os.close(out)
        assert os.read(ours, 1)
        run.send_signal(signal.SIGKILL)
        os.close(ours)
    assert_outlived(tmp_path)


def test_also_if_nothing_of_stallguard_can_carry_its_output(tmp_path: Path) -> None:
    """As after an upgrade: the file of the log is not one that may be written to."""
    ours, out = os.pipe()
    reader = Reader(ours)
    with guarded(tmp_path, out, subprocess.DEVNULL) as run:
        os.close(out)
        assert eventually(lambda: b"out 5 " in reader.data)
        log = (tmp_path / "home/runs/latest/output.log").resolve()
        log.rename(log.with_name("moved"))
        log.symlink_to("moved")
        run.send_signal(signal.SIGKILL)
    sockets = run_files.recall_attempt(RunDir(log.parent))
    assert sockets is not None
    shutil.rmtree(sockets.place)
    assert eventually((tmp_path / "ended").exists)
    reader.all()


@pytest.mark.parametrize("how", ["ends", "SIGTERM", "the reader leaves"])
def test_no_second_process_is_left_of_a_run_that_ends_as_planned(tmp_path: Path, how: str) -> None:
    ours, out = os.pipe()
    with guarded(tmp_path, out, subprocess.DEVNULL) as run:
        os.close(out)
        assert os.read(ours, 1)
        began = psutil.Process(run.pid).children(recursive=True)
        if how == "SIGTERM":
            run.send_signal(signal.SIGTERM)
        if how == "the reader leaves":
            os.close(ours)
        else:
            Reader(ours).all()
        code = run.wait(30)

    assert len(began) >= 2, "the training, and the process that holds its output"
    assert not [one for one in began if one.is_running()]
    # A reader that leaves is the error in the script that it is without stallguard.
    assert (code, (tmp_path / "ended").exists()) == {
        "ends": (0, True), "SIGTERM": (143, False), "the reader leaves": (1, False),
    }[how]  # fmt: skip


def stands_by(run: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return [one for one in psutil.Process(run.pid).children() if "stallguard-output" in one.cmdline()]


def test_no_second_process_is_left_if_the_reader_takes_nothing_to_the_end(tmp_path: Path) -> None:
    """Else it would carry the rest after stallguard's end, after a hole, for as long as the reader stands still."""
    ours, out = os.pipe()
    with guarded(tmp_path, out, subprocess.DEVNULL) as run:
        os.close(out)
        assert os.read(ours, 1)
        began = stands_by(run)
        time.sleep(2.0)  # the pipe is full
        run.send_signal(signal.SIGTERM)
        try:
            assert began
            assert eventually(lambda: not [one for one in began if one.is_running()])
        finally:
            os.close(ours)


def test_its_output_still_reaches_the_user_if_the_directory_of_the_run_is_gone(tmp_path: Path) -> None:
    ours, out = os.pipe()
    reader = Reader(ours)
    with guarded(tmp_path, out, subprocess.DEVNULL) as run:
        os.close(out)
        assert eventually(lambda: b"out 5 " in reader.data)
        attempt = run_files.recall_attempt(RunDir((tmp_path / "home/runs/latest").resolve()))
        assert attempt is not None
        # Renamed first: the supervisor can make a file in a directory that is being removed.
        shutil.rmtree((tmp_path / "home").rename(tmp_path / "removed"))
        run.send_signal(signal.SIGKILL)
    shutil.rmtree(attempt.place)
    assert eventually((tmp_path / "ended").exists)
    assert reader.all().count(b"out ") >= LINES - IN_FLIGHT
