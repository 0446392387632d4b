"""The deciding thread: passes one event after the other to the core, and has the resulting actions performed.

Everything that can block has a thread of its own and posts to the mailbox; this loop waits for the mailbox alone.
This module must not judge: the core does.

An error of our own must not cost the training: it is reported and the next step follows.  After a few, or at once if
the event is one that must not be missed, core.fallback takes the place of the core.

`SampleSummary` sums up what says nothing new, before it becomes an event: a training that trains needs no line a
second.  While every training goes on, batch after batch, the records of its probe and the readings of the sensors are
held for `HOLD` seconds at most, and the newest of each takes the place of the one before.  What is left becomes events
in the order in which it came, each with the time that passed uneventfully before it (`Event.steady`).  A record always
stands before the readings that came after it, so the core never sees a silence that was none.  Anything else, a record
without a new batch or one that is late, another phase, a reading that differs in more than its numbers, lets go of
what is held first.  So the core judges a silence by all that was seen, the journal holds exactly what it judged by,
and a replay decides the same.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TextIO

from msgspec.structs import asdict, replace

from stallguard.core import fallback, fold, lifecycle, trainings
from stallguard.core.actions import Action, Announce, Conclude
from stallguard.core.detection import detector
from stallguard.core.events import ClockGap, Event, Heartbeat, Sampled
from stallguard.core.limits import DetectorLimits, Limits
from stallguard.core.readings import Process, Reading
from stallguard.core.run import Run
from stallguard.core.shutdown import Step
from stallguard.host.clock import SleepWatch
from stallguard.supervisor import notices
from stallguard.supervisor.context import RunContext

# Seconds after which a loop that does not return to its mailbox dumps the stacks of stallguard itself.  Longer than
# context.LONGEST_NAP, so that a loop that only waits for an event is not taken for one that hangs.
OWN_HANG = 90.0
LOOK = 20.0  # seconds between two looks for that
JUDGING = "judging what happened"
UNJUDGED = 3  # events that the core failed to process, after which core.fallback takes its place

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
    "attempt", "trains", "fits", "epoch", "checks", "traces", "source", "saves", "slices", "expect_until", "page",
    "aside",
)  # fmt: skip
# Of a reading, numbers that must be as before too, and what need not be although it is no number.
COUNTS = frozenset({"pid", "members", "workers", "recoveries", "oom_kills", "limit", "total"})
FREE = frozenset({"busiest", "census", "main_site"})


class OwnHang:
    """Writes the stacks of stallguard itself into `file`, once a hang of its loop.

    A Python thread writes them, which has the interpreter's lock.  The timer of faulthandler has not: it can read a
    frame that another thread is removing, and crash; on a Mac that wakes from sleep it can be due at once.
    """

    def __init__(self, file: TextIO, now: Callable[[], float]) -> None:
        self._file, self._now = file, now
        self._written = False
        self._turned, self._ended = now(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="own-hang", daemon=True)

    def turn(self) -> None:
        """Remember that the loop turned."""
        self._turned, self._written = self._now(), False

    def look(self) -> None:
        """Write the stacks if the loop hangs."""
        if not self._written and self._now() - self._turned > OWN_HANG:
            self._written = True
            faulthandler.dump_traceback(self._file)

    def start(self) -> None:
        """Begin to look again and again, in a thread of its own."""
        self._watcher.start()

    def end(self) -> None:
        """Look no more: a loop that is over does not turn."""
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK):
            self.look()


class Loop:
    """Folds events into the run until it concludes.

    `after`: functions, each called with the run after every event.  `hang`: looks whether this loop turns;
    None: nothing does.
    """

    def __init__(self, context: RunContext, perform: Callable[[Action, Run], None]) -> None:
        """`perform` performs an action on the run to which it belongs."""
        self._mailbox, self._current, self._journal = context.mailbox, context.current, context.journal
        self._settings, self._now, self._perform = context.settings, context.clock.monotonic, perform
        self._sleep_watch = SleepWatch(context.clock)
        self._expected = 0.0  # seconds that the last wait was meant to take at most
        self._errors = Counter[str]()  # number of stallguard's own errors, by what was being done
        self._summing = SampleSummary()
        self.after: list[Callable[[Run], None]] = []
        self.hang: OwnHang | None = None

    @property
    def limits(self) -> Limits:
        """The limits that hold now."""
        return self._settings.limits

    @property
    def _run(self) -> Run:
        assert self._current.run is not None  # noqa: S101 - `start` came first
        return self._current.run

    def start(self, run: Run, actions: list[Action], done: Action | None = None) -> None:
        """Take the first value of the run and perform its first actions, except the one that is done already."""
        self._current.run = run
        self._do([action for action in actions if action != done])

    def until_concluded(self) -> int:
        """Fold until the run is over; return its exit code."""
        while self._current.code is None:
            if self.hang is not None:
                self.hang.turn()
            with self.continue_on_error("looking whether the machine slept"):
                gap = self._sleep_watch.tick(self._expected)
                if gap is not None:
                    self.take(ClockGap(at=self._now(), seconds=gap[0], why=gap[1]))
            wake = self._wake(self._run)
            self._expected = self._mailbox.wait(wake)
            self.take(notices.persistently(partial(self._mailbox.next, wake)))
        if self.hang is not None:
            self.hang.end()
        return self._current.code

    def take(self, event: Event) -> None:
        """Pass one event, or those that it completes, to the core; one without news is kept to be summed up.

        `after` is called in either case: the time at which the run is to end can come while no event has news.
        """
        events = [event]
        with self.continue_on_error("summing up what says nothing new"):
            events = self._summing.take(event, self._run, self.limits.detector)
        for one in events:
            self.remember(one.at, one)
            self._current.run, actions = self._advance(self._run, one)
            self._do(actions)
        for look in self.after:
            with self.continue_on_error("looking after the run"):
                look(self._run)

    def newest(self) -> Run | None:
        """Return the run as it would be after the events that are kept to be summed up; from any thread."""
        run = self._current.run
        if run is not None:
            with contextlib.suppress(Exception):  # reported when the core takes the event
                for event in self._summing.preview(run):
                    run, _ = fold.advance(run, event, self.limits)
        return run

    def _wake(self, run: Run) -> float:
        """Return until when the loop can wait for an event (monotonic seconds)."""
        if run.state == lifecycle.UNGUARDED:
            return math.inf
        with self.continue_on_error("looking at its deadlines"):
            if self._summing.held:
                return min(fold.next_deadline(run, self.limits), self._summing.wake(run))
            return fold.next_wake(run, self.limits)
        return self._now() + 1.0

    def _advance(self, run: Run, event: Event) -> Step:
        """Return the next run and its actions; after an error of the core the same run, or that of the fallback."""
        if run.state == lifecycle.UNGUARDED:
            return fallback.follow(run, event)
        try:
            return fold.advance(run, event, self.limits)
        except Exception as error:  # noqa: BLE001 - it must not cost the training
            self._report(JUDGING, error)
            if self._errors[JUDGING] < UNJUDGED and not fallback.is_vital(event):
                return run, []
            return fallback.begin(run, event, notices.error_words(error))

    @contextlib.contextmanager
    def continue_on_error(self, doing: str) -> Iterator[None]:
        """Report an error of stallguard itself in the body, and continue after the body."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it must not cost the training
            with contextlib.suppress(MemoryError):  # not even the report fits into memory
                self._report(doing, error)

    def _report(self, doing: str, error: Exception) -> None:
        """Count an error, and report the first one of each kind."""
        self._errors[doing] += 1
        if self._errors[doing] > 1:
            return
        facts = {"doing": doing, "error": notices.error_words(error), "trace": notices.error_trace(error)}
        if self._current.run is not None:
            self._do([Announce("stallguard.failed", facts)])

    def remember(self, at: float, data: object) -> None:
        """Write an event or an action to the journal."""
        with self.continue_on_error("writing the journal"):
            self._journal.write(at, data)

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            self.remember(self._now(), action)
            with self.continue_on_error(f"doing what is next ({type(action).__name__})"):
                self._perform(action, self._run)
            if isinstance(action, Conclude):
                self._current.code = action.code


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
        keys = [(Heartbeat, one.pid) for one in trainings.judged(run)]
        return [self._newest[key] for key in keys if key in self._newest]


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
    differs = any(getattr(heartbeat, name) != getattr(before, name) for name in SAME)
    if differs or heartbeat.at - before.at > 2 * PAUSE:
        return False
    if not heartbeat.trains:
        return (heartbeat.changes, heartbeat.phase) == (before.changes, before.phase)
    goes_on = heartbeat.beats > before.beats and heartbeat.longest < PAUSE
    return goes_on and {heartbeat.phase, before.phase} <= STEPPING


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
