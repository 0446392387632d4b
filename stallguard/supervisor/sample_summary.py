"""Sums up what says nothing new, before it becomes an event: a training that trains needs no line a second.

While every training goes on, batch after batch, the records of its probe and the readings of the sensors are held for
`HOLD` seconds at most, and the newest of each takes the place of the one before.  What is left becomes events in the
order in which it came, each with the time that passed uneventfully before it (`Event.steady`).  A record always stands
before the readings that came after it, so the core never sees a silence that was none.  Anything else, a record
without a new batch or one that is late, another phase, a reading that differs in more than its numbers, lets go of
what is held first.  So the core judges a silence by all that was seen, the journal holds exactly what it judged by,
and a replay decides the same.

Pure: no clock, no thread.  It must not judge.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import asdict, replace

from stallguard.core import lifecycle, trainings
from stallguard.core.detection import detector
from stallguard.core.events import Event, Heartbeat, Sampled
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Process, Reading
from stallguard.core.run import Run

LIMITS = DetectorLimits()
HOLD = 5.0  # seconds
LEARNING = 120.0  # seconds; a loop whose steps teach no timers is summed up from then on
LATE = 1.25  # seconds after which a training's next record is late: the receiver merges them to one a second
PAUSE = 1.0  # seconds: a longer one between two batches, or between two events, is news
# Phases that alternate while a training trains, and those of a stream of beats that knows no phases.
STEPPING = frozenset({"step", "between", "input", "importing", "idle"})
AT_WORK = frozenset({"running", "sleeping"})  # states of a process that alternate as well
# Of a record, what must be as before; all else is counters and times.
SAME = (
    "attempt", "trains", "fits", "epoch", "checks", "traces", "source", "saves", "factor", "expect_until", "page",
    "aside",
)  # fmt: skip
# Of a reading, numbers that must be as before too, and what need not be although it is no number.
COUNTS = frozenset({"pid", "members", "workers", "recoveries", "oom_kills", "limit", "total"})
FREE = frozenset({"busiest", "census", "main_site"})


class SampleSummary:
    """Holds events back.  Feed it each event; the core takes what it returns, in that order."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.held: tuple[Event, ...] = ()  # in the order in which they came
        self._newest: dict[Any, Event] = {}  # of each kind, held or not
        self._since = math.inf  # when the first of those came whose place is held

    def take(self, event: Event, run: Run, limits: DetectorLimits = LIMITS) -> list[Event]:
        """Return the events that the core is to take now; none if `event` is held.  `run`: before them."""
        key = _key(event)
        before = self._newest.get(key) if key else None
        steady = False
        if before is not None and is_calm(run, limits):
            if isinstance(event, Heartbeat) and isinstance(before, Heartbeat):
                steady = _goes_on(before, event)
            elif isinstance(event, Sampled) and isinstance(before, Sampled):
                on_time = all(event.at - heartbeat.at <= LATE for heartbeat in self._records(run))
                steady = on_time and _is_alike(before.reading, event.reading)
        if key:
            self._newest[key] = event
        if not steady:
            return [*self._let_go(run, len(self.held)), event]
        self._since = min(self._since, event.at)
        self.held = _with(self.held, event)
        if event.at - self._since < HOLD:
            return []
        readings = [index for index, one in enumerate(self.held) if not isinstance(one, Heartbeat)]
        return self._let_go(run, readings[-1] + 1 if readings else len(self.held))

    def preview(self, run: Run) -> list[Event]:
        """Return what is held as the core would take it now."""
        return _spaced(self.held, run.now)

    def wake(self, run: Run) -> float:
        """Return until when the next event can be awaited while something is held (monotonic seconds)."""
        late = min((heartbeat.at + LATE for heartbeat in self._records(run)), default=run.now)
        return min(late, self._since + HOLD + LATE)

    def _let_go(self, run: Run, count: int) -> list[Event]:
        events, self.held = self.held[:count], self.held[count:]
        self._since = min((event.at for event in self.held), default=math.inf)
        return _spaced(events, run.now)

    def _records(self, run: Run) -> list[Event]:
        """Return the newest record of each training that is judged."""
        return [
            self._newest[key]
            for one in trainings.judged(run)
            if (key := (Heartbeat, one.pid)) in self._newest
        ]


def is_calm(run: Run, limits: DetectorLimits = LIMITS) -> bool:
    """Return whether a run trains, and nothing of it is doubted or about to happen.

    In its first LEARNING seconds a training is not calm until the detector knows the timer threads of the runtime: each
    reading of the first steps counts for that, else a deadlock soon after them is taken for a wait of up to 900 s.
    """
    if run.state != lifecycle.RUNNING or not math.isinf(run.deadline) or run.current.memory.is_near:
        return False
    for one in trainings.judged(run):
        state = one.detector_state
        if not one.trains or state.judgement.step != "healthy":
            return False
        is_new = run.now - one.began <= LEARNING
        if is_new and detector.takes_censuses(state) and not detector.knows_timers(state, limits):
            return False
    return True


def _key(event: Event) -> Any:
    if isinstance(event, Heartbeat):
        return Heartbeat, event.pid
    if isinstance(event, Sampled):
        return type(event.reading), getattr(event.reading, "pid", 0)
    return None


def _goes_on(before: Heartbeat, heartbeat: Heartbeat) -> bool:
    """Return whether a record shows new batches and nothing else; of a program that does not train: nothing at all."""
    if heartbeat.at - before.at > 2 * PAUSE or any(
        getattr(heartbeat, name) != getattr(before, name) for name in SAME
    ):
        return False
    if not heartbeat.trains:
        return (heartbeat.changes, heartbeat.phase) == (before.changes, before.phase)
    return (
        heartbeat.beats > before.beats
        and heartbeat.longest < PAUSE
        and {heartbeat.phase, before.phase} <= STEPPING
    )


def _is_alike(before: Reading, reading: Reading) -> bool:
    """Return whether a reading differs from the one before in numbers alone; a census is always news."""
    if isinstance(reading, Process) and (reading.census is not None or reading.workers):
        return False
    values_before = asdict(before)
    for name, new in asdict(reading).items():
        old = values_before[name]
        if name in FREE or old == new:
            continue
        if name == "state":
            may_differ = {old, new} <= AT_WORK
        else:
            may_differ = name not in COUNTS and type(old) in (int, float) and type(new) in (int, float)
        if not may_differ:
            return False
    return True


def _with(held: tuple[Event, ...], event: Event) -> tuple[Event, ...]:
    """Return what is held with `event`; it takes the place of what it makes superfluous."""
    key = _key(event)
    if isinstance(event, Heartbeat):
        return _merged([*held, event])
    return _merged([*(one for one in held if _key(one) != key), event])


def _merged(events: list[Event]) -> tuple[Event, ...]:
    """Return the events with records of one program made one if no reading lies between them."""
    found: list[Event] = []
    since: dict[int, int] = {}  # where in `found` the record of a program stands that no reading follows
    for event in events:
        if not isinstance(event, Heartbeat):
            since = {}
            found.append(event)
        elif event.pid not in since:
            since[event.pid] = len(found)
            found.append(event)
        else:  # the newer record, with the longest pause of both
            place, merged = since[event.pid], event
            before = found[place]
            if isinstance(before, Heartbeat) and before.longest > event.longest:
                merged = replace(event, longest=before.longest, longest_phase=before.longest_phase)
            found[place] = merged
    return tuple(found)


def _spaced(events: tuple[Event, ...], now: float) -> list[Event]:
    """Return the events, each with the uneventful time before it if that is longer than the core expects."""
    found = []
    for event in events:
        passed = round(event.at - now, 4)
        found.append(replace(event, steady=passed) if passed > PAUSE else event)
        now = max(now, event.at)
    return found
