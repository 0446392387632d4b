"""Runs a program of `scripts/bench slow` under a real `stallguard run`, and reads what is said of it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from harness.children import ended, environment, guarding, started
from slowness.cases import Case
from slowness.surroundings import AROUND, Surroundings
from stallguard.core.events import AnyEvent, Heartbeat, Profiled
from stallguard.core.profile import Profile
from stallguard.core.readings import Process
from stallguard.storage import journal

LONGEST = 600.0  # seconds that a run may take: 10 times what one takes on a quiet machine
LOOK = 1.0  # seconds between two looks at the runs
ENDING = 60.0  # seconds until a guard that was asked to end is killed


class Bottleneck(msgspec.Struct, frozen=True):
    """What the report says of a bottleneck; the fields that the bench needs."""

    kind: str
    seconds: float = 0.0
    share: float = 0.0
    file: str = ""
    line: int = 0
    evidence: list[str] = []


class Report(msgspec.Struct, frozen=True):
    """`stallguard report --json`; `bottlenecks` is None if the report has no such field."""

    bottlenecks: list[Bottleneck] | None = None


class Ran(NamedTuple):
    """A run that is over."""

    code: int | None  # of the guard
    report: Report
    events: list[AnyEvent]
    seconds: float
    others: float  # cores that other processes took meanwhile, on average

    @property
    def profile(self) -> Profile | None:
        profiles = [event.profile for event in self.events if isinstance(event, Profiled)]
        return profiles[-1] if profiles else None


def run(case: Case, place: Path) -> list[Ran]:
    """Run a case in the directory `place`; return its runs, the one that is judged first.  Raises Unavailable."""
    with AROUND[case.around]() as around:
        began, busy = time.monotonic(), _busy()
        homes = [place / str(number) for number in range(around.copies)]
        with contextlib.ExitStack() as stack:
            guards = [stack.enter_context(_guard(case, around, home)) for home in homes]
            _wait(guards, homes[0], around)
        seconds = time.monotonic() - began
        total = (_busy() - busy) / seconds
    read = [_read(*one, seconds) for one in zip(homes, guards, strict=True)]
    return [one._replace(others=max(0.0, total - sum(_cores(other) for other in read))) for one in read]


def _busy() -> float:
    """Return the processor seconds of the whole machine so far."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def _guard(case: Case, around: Surroundings, home: Path) -> subprocess.Popen[bytes]:
    home.mkdir(parents=True)
    command = guarding(str(case.path), *case.arguments, *around.arguments)
    return started([*around.before, *command], home, output=home / "printed", TF_CPP_MIN_LOG_LEVEL="3")


def _wait(guards: Sequence[subprocess.Popen[bytes]], home: Path, around: Surroundings) -> None:
    """Wait for the runs to end; end them if they take too long."""
    end, has_begun = time.monotonic() + LONGEST, False
    while any(guard.poll() is None for guard in guards) and time.monotonic() < end:
        time.sleep(LOOK)
        if not has_begun and _trains(directory(home) / "journal.jsonl"):
            has_begun = True
            around.trains()
    for guard in guards:
        ended(guard, 0.0, ENDING)


def _trains(path: Path) -> bool:
    return path.exists() and any(isinstance(event, Heartbeat) and event.beats for event in journal.events(path))


def directory(home: Path) -> Path:
    """Return the directory of the newest run."""
    return home / "runs" / "latest"


def _read(home: Path, guard: subprocess.Popen[bytes], seconds: float) -> Ran:
    command = [sys.executable, "-m", "stallguard", "report", "--json"]
    said = subprocess.run(command, env=environment(home), cwd=home, capture_output=True, check=False)
    report = msgspec.json.decode(said.stdout, type=Report) if said.returncode == 0 else Report()
    path = directory(home) / "journal.jsonl"
    events = list(journal.events(path)) if path.exists() else []
    return Ran(guard.returncode, report, events, seconds, 0.0)


def _cores(ran: Ran) -> float:
    """Return how many cores a run's training took, on average over the run."""
    readings = [event.reading for event in ran.events if hasattr(event, "reading")]
    spent = [one.cpu for one in readings if isinstance(one, Process) and one.cpu is not None]
    return max(spent, default=0.0) / ran.seconds
