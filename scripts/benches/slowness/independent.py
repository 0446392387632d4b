"""Samplers that share no code with the probe's: the stacks that a signal makes Python's faulthandler write, or py-spy.

The signal's handler runs in C without the interpreter's lock, at moments that this process chooses.  py-spy reads the
memory of the process from outside; this project does not require it, and `--py-spy PATH` names one that is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from stallguard.collectors import stacks
from stallguard.collectors.stacks import Frame
from stallguard.core.events import Heartbeat, ProbeConnected
from stallguard.core.profile import FEEDER, TRAINING, Profile
from stallguard.storage import journal

StackDump = list[stacks.Thread]
Lines = dict[tuple[str, int], float]  # role and line of the program -> its share of the time
LEAST = 0.2  # share of the time from which a thread's first line is compared
NEAR = 0.15  # shares that two samplers cannot separate: two deviations of 60 samples at one half


class _PySpyFrame(msgspec.Struct, frozen=True):
    filename: str
    line: int
    name: str


class _PySpyThread(msgspec.Struct, frozen=True):
    thread_id: int
    frames: tuple[_PySpyFrame, ...]


_PY_SPY = msgspec.json.Decoder(list[_PySpyThread])


class IndependentSampler:
    """Samples the training of a run from outside, once it trains."""

    def __init__(self, directory: Path) -> None:
        """`directory`: of the run, which need not exist yet."""
        self._directory = directory
        self._marks: list[int] = []  # sizes of the file before each dump
        self.pid = 0  # of the training; 0 until its first batch

    def sample(self) -> None:
        """Let the training write its stacks, if it can."""
        if not self.pid:
            self.pid = self._trains()
        elif self._file.exists() and _is_caught(self.pid):
            self._marks.append(self._file.stat().st_size)
            try:
                os.kill(self.pid, signal.SIGURG)
            except ProcessLookupError:
                self._marks.pop()

    def dumps(self) -> Iterator[StackDump]:
        """Yield what was written."""
        if not self._marks:
            return
        text = self._file.read_bytes()
        for begin, end in zip(self._marks, [*self._marks[1:], len(text)], strict=True):
            if end > begin:
                yield stacks.parse(text[begin:end].decode(errors="replace"))

    @property
    def _file(self) -> Path:
        return self._directory / "probe" / f"{self.pid}.stacks"

    def _trains(self) -> int:
        """Return the process that has ended a batch and handles the signal; another would be killed by it."""
        path = self._directory / "journal.jsonl"
        armed = set()
        for event in journal.events(path) if path.exists() else ():
            if isinstance(event, ProbeConnected) and event.armed:
                armed.add(event.pid)
            if isinstance(event, Heartbeat) and event.beats and event.pid in armed:
                return event.pid
        return 0


class PySpySampler(IndependentSampler):
    """Takes the same samples with `py-spy dump`."""

    def __init__(self, directory: Path, program: str) -> None:
        """`program`: py-spy."""
        super().__init__(directory)
        self._program = program
        self._dumps: list[StackDump] = []

    def sample(self) -> None:
        """Let py-spy read the stacks of the training, if it can."""
        if not self.pid:
            self.pid = self._trains()
            return
        command = [self._program, "dump", "--json", "--pid", str(self.pid)]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:  # else the training has ended
            threads = [
                stacks.Thread(hex(one.thread_id), tuple(Frame(at.filename, at.line, at.name) for at in one.frames))
                for one in _PY_SPY.decode(done.stdout)
            ]
            self._dumps.append(threads[::-1])  # the oldest last, as faulthandler has them

    def dumps(self) -> Iterator[StackDump]:
        """Yield what was read."""
        return iter(self._dumps)


def _is_caught(pid: int) -> bool:
    """Return whether a process still has the handler: an interpreter that ends removes it, and the signal would kill.

    That is known on Linux alone (proc(5)); elsewhere the answer is no, and nothing is sampled.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return False
    mask = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(mask >> (signal.SIGURG - 1) & 1)


def seen(dumps: Iterable[StackDump], program: Path) -> Lines:
    """Return the shares of the dumps in which each line of the program was the innermost one of its thread."""
    counted: Counter[tuple[str, int]] = Counter()
    total = 0
    for threads in dumps:
        total += 1
        main = stacks.main_thread(threads)
        for thread in threads:
            line = next((frame.line for frame in thread.frames if frame.file == str(program)), 0)
            if line:
                counted[TRAINING if thread is main else FEEDER, line] += 1
    return {key: count / total for key, count in counted.items()}


def sampled(profile: Profile, program: Path) -> Lines:
    """Return the same of the probe's samples."""
    shares: Lines = {}
    for spot in profile.spots:
        if spot.file == str(program):
            key = spot.role, spot.line
            shares[key] = shares.get(key, 0.0) + spot.seconds / profile.seconds
    return shares


def agree(ours: Lines, theirs: Lines) -> bool:
    """Return whether both samplers have the same first line of the training thread, and of the others.

    If they differ, their shares must be too near to each other to say which is the first.
    """
    for role in (TRAINING, FEEDER):
        mine = max((key for key in ours if key[0] == role), key=lambda key: ours[key], default=None)
        other = max((key for key in theirs if key[0] == role), key=lambda key: theirs[key], default=None)
        if other is None or theirs[other] < LEAST:
            continue
        if mine is None or abs(theirs[other] - theirs.get(mine, 0.0)) > NEAR:
            return False
    return True
