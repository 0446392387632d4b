"""Runs a program of `scripts/bench slow` under a real `stallguard run`, and reads what is said of it."""

from __future__ import annotations

import contextlib
import random
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
from slowness.independent import IndependentSampler, PySpySampler, StackDump
from slowness.surroundings import AROUND, Surroundings
from stallguard.core.events import AnyEvent, Heartbeat, Profiled
from stallguard.core.profile import Profile
from stallguard.core.readings import Process
from stallguard.storage import journal

ROOT = Path(__file__).resolve().parents[3]
LONGEST = 600.0  # seconds that a run may take: 10 times what one takes on a quiet machine
SAMPLED = 1.0  # seconds between two dumps of the independent sampler, at most
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
    dumps: tuple[StackDump, ...]  # of the independent sampler

    @property
    def profile(self) -> Profile | None:
        """Where the time went, as it was last posted."""
        profiles = [event.profile for event in self.events if isinstance(event, Profiled)]
        return profiles[-1] if profiles else None

    @property
    def last(self) -> Heartbeat | None:
        """The last record of the training."""
        beats = [event for event in self.events if isinstance(event, Heartbeat) and event.trains]
        return beats[-1] if beats else None


def run(case: Case, place: Path, py_spy: str = "") -> list[Ran]:
    """Run a case in the directory `place`; return its runs, the one that is judged first.  Raises Unavailable.

    `py_spy`: the program that samples beside the probe; "": the stacks that a signal writes.
    """
    with AROUND[case.around]() as around:
        began, busy = time.monotonic(), _busy()
        homes = [place / str(number) for number in range(around.copies)]
        samplers = [
            PySpySampler(directory(home), py_spy) if py_spy else IndependentSampler(directory(home)) for home in homes
        ]
        with contextlib.ExitStack() as stack:
            guards = [stack.enter_context(_guard(case, around, home)) for home in homes]
            _wait(guards, samplers, around)
        seconds = time.monotonic() - began
        total = (_busy() - busy) / seconds
    read = [_read(*one, seconds) for one in zip(homes, guards, samplers, strict=True)]
    return [one._replace(others=max(0.0, total - sum(_cores(other) for other in read))) for one in read]


def _busy() -> float:
    """Return the processor seconds of the whole machine so far."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def _guard(case: Case, around: Surroundings, home: Path) -> subprocess.Popen[bytes]:
    home.mkdir(parents=True)
    command = guarding(str(case.path), *case.arguments, *around.arguments)
    return started([*around.before, *command], home, output=home / "printed", TF_CPP_MIN_LOG_LEVEL="3")


def _wait(
    guards: Sequence[subprocess.Popen[bytes]], samplers: Sequence[IndependentSampler], around: Surroundings
) -> None:
    """Wait for the runs to end, and sample their stacks; end them if they take too long."""
    end, has_begun = time.monotonic() + LONGEST, False
    while any(guard.poll() is None for guard in guards) and time.monotonic() < end:
        time.sleep(random.uniform(0.5, 1.0) * SAMPLED)
        for sampler in samplers:
            sampler.sample()
        if not has_begun and samplers[0].pid:
            has_begun = True
            around.trains()
    for guard in guards:
        ended(guard, 0.0, ENDING)


def directory(home: Path) -> Path:
    """Return the directory of the newest run."""
    return home / "runs" / "latest"


def _read(home: Path, guard: subprocess.Popen[bytes], sampler: IndependentSampler, seconds: float) -> Ran:
    command = [sys.executable, "-m", "stallguard", "report", "--json"]
    said = subprocess.run(command, env=environment(home), cwd=home, capture_output=True, check=False)
    report = msgspec.json.decode(said.stdout, type=Report) if said.returncode == 0 else Report()
    path = directory(home) / "journal.jsonl"
    events = list(journal.events(path)) if path.exists() else []
    return Ran(guard.returncode, report, events, seconds, 0.0, tuple(sampler.dumps()))


def _cores(ran: Ran) -> float:
    """Return how many cores a run's training took, on average over the run."""
    readings = [event.reading for event in ran.events if hasattr(event, "reading")]
    spent = [one.cpu for one in readings if isinstance(one, Process) and one.cpu is not None]
    return max(spent, default=0.0) / ran.seconds
