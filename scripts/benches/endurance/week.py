"""A week of a run in minutes: stallguard's own loop, summary, journal and snapshots, with the time injected.

The events are those that a training of a week would cause: its records, the readings of every sensor, validations,
checkpoints, pauses that are suspected and recover, and crashes that restart it.  Nothing waits: the mailbox hands out
the next event, or the tick that the loop wants before it, and moves the clock there.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import psutil
from msgspec.structs import replace

from stallguard.config import Config
from stallguard.core import fold
from stallguard.core.actions import Action, Ask, Collect, Launch, Signal
from stallguard.core.events import Collected, Event, Exited, Heartbeat, Launched, ProbeConnected, Sampled, Ticked
from stallguard.core.readings import Device, Files, Machine, Memory, Process
from stallguard.core.run import Run
from stallguard.storage.journal import Journal, SnapshotSaver, snapshot_file
from stallguard.storage.paths import RunDir
from stallguard.supervisor.context import CurrentRun, Mailbox, RunContext
from stallguard.supervisor.live_status import snapshot
from stallguard.supervisor.loop import Loop
from stallguard.supervisor.notices import Recorder


class Reading(NamedTuple):
    """A process at one moment.  `at`, `cpu`: seconds; `memory`: bytes; `journal`: bytes on the disk."""

    at: float
    memory: int
    cpu: float
    files: int
    threads: int
    journal: int


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth per unit of x: the median of the slopes between the points of the first and the second half.

    A page that is touched once moves it little, unlike a least-squares line (Theil and Sen's estimator, on pairs that
    are half the time apart).  0 for fewer than two points.
    """
    half = len(points) // 2
    found = [
        (late[1] - early[1]) / (late[0] - early[0])
        for early, late in zip(points[:half], points[len(points) - half :], strict=True)
        if late[0] > early[0]
    ]
    return statistics.median(found) if found else 0.0


def read(process: psutil.Process, journal: Path, at: float) -> Reading:
    """Return the process as it is now.  Raises psutil.Error if it is gone."""
    with process.oneshot():
        times = process.cpu_times()
        return Reading(
            at, process.memory_info().rss, times.user + times.system, process.num_fds(), process.num_threads(),
            size_of(journal),
        )  # fmt: skip


def size_of(journal: Path) -> int:
    """Return the bytes of a journal and its older parts."""
    return sum(part.stat().st_size for part in journal.parent.glob(f"{journal.stem}.*") if part.is_file())


DAY, HOUR = 86_400.0, 3600.0
RATE = 200  # batches a second
RECORD, EPOCH = 0.8, 600.0  # seconds between two records, and between two epochs
VALIDATION, SAVE, PAUSE = 20.0, 4.0, 40.0  # seconds
PAUSES, CRASHES = 3 * HOUR, 12 * HOUR  # between two
PERIODS = {"process": 1.0, "memory": 5.0, "machine": 15.0, "device": 10.0, "files": 2.0}  # of the sensors
BOUND = 16 << 20  # bytes of the journal, so that a week reaches it; the setting is 256 MB
GIGA = 1 << 30


class Hours(NamedTuple):
    """The process of the loop after so many hours of the run.  Bytes."""

    hours: float
    memory: int
    journal: int
    snapshot: int
    status: int


class Clock:
    """A clock that the mailbox moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def asleep(self) -> float:
        return 0.0


class World:
    """What happens to the run: the events of one attempt at a time, until the week is over."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        """The run begins now and trains for `seconds`."""
        self._clock, self._end = clock, clock.now + seconds
        self._pid, self.answers = 0, list[tuple[float, int, Event]]()
        self._trained = 0.0  # seconds of training before this attempt, which it resumes after
        self._numbers = itertools.count()
        self._attempt: Iterator[Event] = iter(())
        self._next: Event | None = None

    def answer(self, event: Event) -> None:
        heapq.heappush(self.answers, (event.at, next(self._numbers), event))

    def perform(self, action: Action, _run: Run) -> None:
        now = self._clock.now
        if isinstance(action, Launch):
            self._pid += 1
            self.answer(Launched(at=now, attempt=action.attempt, pid=self._pid, resumed=action.resume))
            self._attempt = self._events(action.attempt, now + 5.0)
            self._next = next(self._attempt, None)
        elif isinstance(action, Collect):
            self.answer(Collected(at=now + 2.0, incident=action.incident, seconds=2.0))
        elif isinstance(action, Signal | Ask):
            self._next = None
            self.answer(Exited(at=now + 1.0, attempt=action.attempt, code=-15))

    def take(self, wake: float) -> Event:
        """Return what happens next, at `wake` at the latest, and move the clock there."""
        answer = self.answers[0][0] if self.answers else math.inf
        event: Event
        if self._next is not None and self._next.at <= min(answer, wake):
            event, self._next = self._next, next(self._attempt, None)
        elif answer <= wake:
            event = heapq.heappop(self.answers)[2]
        else:
            event = Ticked(at=wake)
        self._clock.now = max(self._clock.now, event.at)
        return replace(event, at=self._clock.now)

    def _events(self, attempt: int, begin: float) -> Iterator[Event]:
        """Yield the events of an attempt: until its crash, or the end of the week."""
        pid, crash = self._pid, begin + CRASHES
        yield ProbeConnected(at=begin, attempt=attempt, pid=pid, place="a", armed=True, versions={"keras": "3.15"})
        last, due = Heartbeat(at=begin, attempt=attempt), dict.fromkeys(PERIODS, begin)
        for number in itertools.count(1):
            at = begin + number * RECORD
            if at >= min(crash, self._end):
                break
            last = _record(last, at, at - begin, self._trained, attempt, pid)
            for name in [name for name, when in due.items() if when < at]:
                due[name] += PERIODS[name]
                yield Sampled(at=max(last.at - RECORD + 0.01, begin), reading=_reading(name, pid, at - begin))
            yield last
        self._trained += at - begin
        yield Exited(at=at, attempt=attempt, code=0 if at >= self._end else -9)


def _record(before: Heartbeat, at: float, age: float, trained: float, attempt: int, pid: int) -> Heartbeat:
    """Return the record at `at`.  `age`, `trained`: seconds of training in this attempt and before it."""
    place, epoch = (trained + age) % EPOCH, int((trained + age) // EPOCH)
    if age % PAUSES > PAUSES - PAUSE:  # a pause of the device: it will recover
        return replace(before, at=at, sent_at=at, longest=0.0)
    phase = "validation" if place < VALIDATION else "checkpoint" if place < VALIDATION + SAVE else "step"
    beats = before.beats + (round(RECORD * RATE) if phase == "step" else 0)
    return Heartbeat(
        at=at, attempt=attempt, pid=pid, trains=True, beats=beats, beat_at=at, phase=phase, phase_at=at,
        progress_at=at - 0.01, changes=before.changes + round(2 * RECORD * RATE), sent_at=at, longest=0.006,
        longest_phase=phase, fits=1, fit_beats=beats, epoch=epoch, epochs=1 << 20, batch=round(place * RATE),
        batches=round(EPOCH * RATE), checks=int(age // EPOCH), saves=int(age // EPOCH), slices=1, source="callbacks",
        iterations=beats, iterations_at=at, loss=1.0 / (1.0 + age), step_s=0.9 * age,
    )  # fmt: skip


def _reading(name: str, pid: int, age: float) -> Any:
    if name == "process":
        return Process(
            pid=pid, state="running", cpu=round(1.5 * age, 2), members=1, threads=40, switches=round(900 * age),
            io=round(1e5 * age), disk=0, minor_faults=round(10 * age), major_faults=0, footprint=GIGA, rss=GIGA,
            run_queue=0.01 * age, census={"futex": 30, "timed": 2} if int(age) % 10 == 0 else None, workers=0,
            remote=False,
        )  # fmt: skip
    if name == "memory":
        return Memory(total=16 * GIGA, available=8 * GIGA - int(age) % 997, swap_used=0, swap_outs=0)
    if name == "machine":
        return Machine(idle=0.5, cores=8, load=2.0 + (age % 7) / 10, power="ac", asleep=0.0)
    if name == "device":
        return Device(name="gpu", utilisation=0.9, moved=True, power=200.0 + age % 5, memory=GIGA, used_by_run=True)
    return Files(writing=False, path="weights.keras", age=round(age % EPOCH, 2), size=GIGA)


class _Handed(Mailbox):
    """Hands out what happens in the world; nothing waits."""

    def __init__(self, clock: Clock, world: World) -> None:
        super().__init__(clock.monotonic)
        self._world = world

    def wait(self, _wake: float) -> float:
        return 0.0

    def next(self, wake: float) -> Event:
        return self._next.popleft() if self._next else self._world.take(wake)


def live(place: Path, days: float) -> tuple[int, list[Hours]]:
    """Let a run live for `days`; return its exit code, and what was seen each hour.  `place`: a new directory."""
    clock, directory = Clock(), RunDir(place)
    world = World(clock, days * DAY)
    current, recorder = CurrentRun(), Recorder()
    settings: Any = SimpleNamespace(config=Config(), limits=Config().limits())
    context = SimpleNamespace(
        mailbox=_Handed(clock, world), current=current, journal=recorder, settings=settings, clock=clock
    )
    loop = Loop(cast("RunContext", context), world.perform)
    journal = Journal(directory.journal, _fail, BOUND, clock.monotonic, directory.id)
    recorder.open(journal)
    seen, process, begin = list[Hours](), psutil.Process(), clock.now

    def look(run: Run) -> None:
        if clock.now - begin >= len(seen) * HOUR:
            state, saved = snapshot(directory.id, run, clock.now), snapshot_file(directory)
            size = saved.stat().st_size if saved.exists() else 0
            memory, hours = process.memory_info().rss, (clock.now - begin) / HOUR
            seen.append(Hours(hours, memory, size_of(directory.journal), size, len(repr(state))))

    loop.after = [SnapshotSaver(directory, journal).look, look]
    loop.start(fold.begin(clock.now), [Launch(attempt=1)])
    try:
        return loop.until_concluded(), seen
    finally:
        journal.close()


def _fail(words: str) -> None:
    raise RuntimeError(words)
