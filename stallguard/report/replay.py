"""Decides the past again: the core over the events of a recorded run, and what it would have done when, as text.

It is the same pure core as in a live run, so a setting can be tried on last night's journal.  The recorded run is the
world that the core decides about: what followed an order that night follows it in the replay too.

The events of a journal are what happened under the orders of that night.  Most of them depend on no order: records of
the probe, readings, what the user asked for.  Three do.  The evidence (Collected) follows the order to collect it, the
end of an attempt (Exited) follows a signal, and the next attempt, with all that is recorded of it, follows its launch.
If the replay gives such an order at another time, then what followed comes at another time: as long after the order as
it came that night.  Else a replay with other settings would move the verdict and leave the restart where it was.

Two things no recording has.  If that night a silence was ended by a signal and the replay waits for longer, the silence
goes on as it was, for HORIZON at most.  If the replay launches an attempt that was not recorded, the replay is over.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from stallguard.core import fold, trainings
from stallguard.core.actions import Action, AnyAction, Collect, Conclude, Launch, Signal
from stallguard.core.detection import detector
from stallguard.core.detection.verdict import DetectorState
from stallguard.core.events import (
    DUMP,
    AnyEvent,
    Collected,
    Event,
    Exited,
    Failed,
    Heartbeat,
    Launched,
    Sampled,
    Ticked,
)
from stallguard.core.lifecycle import ENDED, WATCHED
from stallguard.core.limits import DetectorLimits, Limits
from stallguard.core.messages import DOING, NO_LIMIT, STOPPED, duration, limit, place
from stallguard.core.readings import Process
from stallguard.core.run import Run
from stallguard.core.text import counted
from stallguard.errors import UNREADABLE
from stallguard.report.journal_record import clock, elapsed, wall
from stallguard.report.sanitize import plain
from stallguard.storage import journal
from stallguard.storage.paths import RunDir

SAME = 0.5  # seconds within which an order is the recorded one: what followed then comes when it came
HORIZON = 900.0  # seconds for which a silence goes on behind its recorded end
PERIOD = 0.5  # seconds between two readings of a silence that goes on
SILENT = 3.0  # seconds without progress: less is no silence that could go on
RATES_OVER = 2.0  # seconds, at least, between the two readings that show how fast a counter moves
ENDS = {"TERM": -15, "KILL": -9}  # signals that end an attempt, and its exit code if no other is recorded
COUNTERS = (
    "cpu", "switches", "io", "disk", "minor_faults", "major_faults", "instructions", "run_queue",
)  # fmt: skip

Order = tuple[float, Action]  # with the time at which it was given, seconds on the supervisor's clock


class Recording(NamedTuple):
    """What the journal at `path` holds for a replay.

    `walls`: pairs of the supervisor's clock and seconds since the epoch, the first of which is its beginning.
    """

    path: Path
    events: list[Event]
    orders: list[Order]
    walls: list[tuple[float, float]]


def read(path: Path) -> Recording:
    """Return the events and the orders of a journal; lines that cannot be read are left out.

    Raises StallguardError if it cannot be read.
    """
    event, action = msgspec.json.Decoder(AnyEvent).decode, msgspec.json.Decoder(AnyAction).decode
    found = Recording(path, [], [], [])
    for entry in journal.read(path):
        try:
            if entry.is_input:
                found.events.append(event(entry.raw))
                found.walls.append((entry.line.clock, dt.datetime.fromisoformat(entry.line.time).timestamp()))
            elif entry.line.level == "debug":
                found.orders.append((entry.line.clock, action(entry.raw)))
        except (OverflowError, *UNREADABLE):
            continue
    return found


class _Attempt:
    """One attempt as it was recorded, from its launch to the launch of the next."""

    def __init__(self, launched: float) -> None:
        self.launched = launched  # when its launch was ordered
        self.events: list[Event] = []
        self.collected: list[Collected] = []
        self.exited: Exited | None = None
        self.signals: dict[str, float] = {}
        self.prolonged = False  # its silence goes on behind its recorded end

    @property
    def ended(self) -> float:
        """When what is recorded was ordered to end; infinity if it was not."""
        return math.inf if self.prolonged else min(self.signals.values(), default=math.inf)

    def prolong(self, place: int) -> None:
        """Let the silence go on as it was that was ended before the event at `place`.

        The newest record and readings come again and again; counters go on as fast as before.
        """
        ended = self.ended
        newest: dict[tuple[type, int], Event] = {}
        before: dict[tuple[type, int], Event] = {}
        for event in self.events[:place]:
            key: tuple[type, int]
            if isinstance(event, Heartbeat):
                key = Heartbeat, event.pid
            elif isinstance(event, Sampled):
                key = type(event.reading), getattr(event.reading, "pid", 0)
            else:
                continue
            newest[key] = event
            if event.at <= ended - RATES_OVER:
                before[key] = event
        pulsing = {key: one for key, one in newest.items() if key[0] is not Heartbeat or one.at > ended - SILENT}
        times = (ended + PERIOD * turn for turn in range(1, int(HORIZON / PERIOD)))
        last = next((at for at, one in enumerate(self.events) if one is self.exited), len(self.events))
        self.events[place:last] = [_later(one, before.get(key), at) for at in times for key, one in pulsing.items()]
        self.prolonged = True


def _attempts(events: Iterable[Event], orders: Sequence[Order]) -> list[_Attempt]:
    launches = {action.attempt: at for at, action in orders if isinstance(action, Launch)}
    found: dict[int, _Attempt] = {}
    current, number = _Attempt(0.0), 0
    for event in events:
        if isinstance(event, (Launched, Failed)) and (not found or event.attempt > number):
            number, before = event.attempt, current.events if not found else []
            current = found[number] = _Attempt(launches.get(number, event.at))
            current.events += before  # what came before the first launch
        if isinstance(event, Collected) and event.incident != DUMP:
            current.collected.append(event)
            continue
        if isinstance(event, Exited) and current.exited is None:
            current.exited = event
        current.events.append(event)
    for at, action in orders:
        if isinstance(action, Signal) and action.name in ENDS and action.attempt in found:
            found[action.attempt].signals.setdefault(action.name, at)
    return list(found.values()) or [current]


class World:
    """Gives the events of a recorded run one after the other, and what follows the orders of the replay."""

    def __init__(self, events: Iterable[Event], orders: Iterable[Order] = ()) -> None:
        """`events`, `orders`: of the recording; without orders each end counts as the training's own."""
        self._attempts = _attempts(events, list(orders))
        self._number, self._place = 0, 0  # of the attempt, and of the next event in it
        self._shift = 0.0  # seconds by which this attempt's events are moved
        self._following: list[Event] = []  # what follows orders of the replay
        self._ending = False  # the replay has ordered the end of this attempt
        self._over = False

    @property
    def begins(self) -> float:
        """The time of the first event; 0 if there is none."""
        return next((event.at for one in self._attempts for event in one.events), 0.0)

    def next(self, run: Run) -> Event | None:
        """Return what happens next to `run`; None if there is nothing more to decide about."""
        if self._over or run.state in ENDED:
            return None
        own = self._own(run)
        at = min((event.at for event in (*self._following, own) if event is not None), default=math.inf)
        if run.now < run.deadline < at:
            steady = run.deadline - run.now if own is not None and own.steady else 0.0
            return Ticked(at=run.deadline, steady=steady)
        if own is not None and own.at <= at:
            self._place += 1
            return own
        if not self._following:
            return None
        event, last = self._following.pop(0), self._attempts[self._number].exited
        if isinstance(event, Exited) and last is not None:
            # What is recorded behind an end comes as long after it as it did that night.
            self._shift = event.at - last.at
            self._place = self._attempts[self._number].events.index(last) + 1
        return event

    def follow(self, action: Action, run: Run) -> None:
        """Take an order of the replay: what followed it that night is to come as long after it."""
        if isinstance(action, Collect) and action.incident != DUMP:
            # The evidence that was collected in this silence; empty if there was none.
            attempt, began = self._attempts[self._number], run.detector_state.judgement.since - self._shift
            later = (
                event.at for event in attempt.events[self._place :]
                if isinstance(event, Heartbeat) and event.progress_at > run.now - self._shift
            )  # fmt: skip
            over = next(later, math.inf)
            found = next((one for one in attempt.collected if began <= one.at < over), None)
            if found is None:
                self._follow(Collected(at=run.now, incident=action.incident, seconds=0.0))
            else:
                at = self._after(run.now, found.at - found.seconds, found.at)
                self._follow(replace(found, at=at, incident=action.incident))
        elif isinstance(action, Signal) and action.name in ENDS:
            self._end(action.name, run)
        elif isinstance(action, Launch) and self._number + 1 == len(self._attempts):
            self._over = True
        elif isinstance(action, Launch):
            ordered = self._attempts[self._number + 1].launched
            if abs(run.now - self._shift - ordered) >= SAME:
                self._shift = run.now - ordered
            self._number, self._place = self._number + 1, 0
            self._following, self._ending = [], False

    def _own(self, run: Run) -> Event | None:
        """Return the next event that follows no order of the replay, without taking it."""
        attempt = self._attempts[self._number]
        event = attempt.events[self._place] if self._place < len(attempt.events) else None
        if event is not None and event.at > attempt.ended and not self._ending:
            if run.state not in WATCHED or run.detector_state.judgement.gap < SILENT:
                return None  # it was ended in the midst of its work: how it would have continued is not known
            attempt.prolong(self._place)
            event = attempt.events[self._place]
        if event is None or (event is attempt.exited and (self._ending or attempt.prolonged)):
            return None
        return moved(event, self._shift)

    def _follow(self, event: Event) -> None:
        self._following = sorted([*self._following, event], key=lambda one: one.at)

    def _after(self, ordered: float, recorded: float, then: float) -> float:
        """Return when something comes that came at `then`, after an order that was given at `recorded`."""
        if abs(ordered - self._shift - recorded) < SAME:
            return max(ordered, then + self._shift)
        return ordered + max(0.0, then - recorded)

    def _end(self, name: str, run: Run) -> None:
        """Let the attempt end after the signal `name` as it ended that night, at once if it did not."""
        attempt = self._attempts[self._number]
        self._ending = True
        last, recorded = attempt.exited, attempt.signals.get(name)
        if name == "TERM" and last is not None and "KILL" in attempt.signals:
            return  # it did not end by SIGTERM that night
        self._following = [one for one in self._following if not isinstance(one, Exited)]
        if last is None or recorded is None:
            self._follow(Exited(at=run.now, attempt=run.current.number, code=ENDS[name]))
        else:
            at = self._after(run.now, recorded, last.at)
            self._follow(replace(last, at=at, attempt=run.current.number, steady=0.0))


def _later(event: Event, before: Event | None, at: float) -> Event:
    """Return a record or reading again, at a later time; `before`: a reading from which its counters have moved."""
    if isinstance(event, Heartbeat):
        return replace(event, at=at, sent_at=event.sent_at + at - event.at, steady=0.0)
    if not (isinstance(before, Sampled) and isinstance(event, Sampled) and isinstance(event.reading, Process)):
        return replace(event, at=at, steady=0.0)
    share = (at - event.at) / (event.at - before.at) if event.at > before.at else 0.0
    changes: dict[str, Any] = {}
    for name in COUNTERS:
        was, now = getattr(before.reading, name), getattr(event.reading, name)
        if was is not None and now is not None:
            value = now + max(0.0, now - was) * share
            changes[name] = value if isinstance(now, float) else int(value)
    return replace(event, at=at, reading=replace(event.reading, **changes), steady=0.0)


def moved(event: Event, by: float) -> Event:
    """Return an event with all of its times `by` seconds later; a time of 0 means never, and stays."""
    if not by:
        return event
    names = (name for name in event.__struct_fields__ if name.endswith("_at") or name == "expect_until")
    times = {name: value + by for name in names if (value := getattr(event, name)) > 0}
    return replace(event, at=event.at + by, **times)


_TOLD = {"suspect": "suspect", "stalled": "stalled", "stopped": "stalled", "recovering": "recovered"}


class Verdict(msgspec.Struct, frozen=True):
    """One change of the opinion.  `at`: seconds since the recording began; `gap`, `threshold`: seconds.

    `step`: suspect, stalled or recovered; `verdict`: the same in the detector's own words (stopped and stalled
    are two); `cause`: the class of evidence; `act_at`: when acting would be due if nothing moved till then.
    """

    at: float
    step: str
    verdict: str
    cause: str
    row: str
    phase: str
    gap: float
    threshold: float | None
    certain: bool = False
    act_at: float | None = None


class Slow(msgspec.Struct, frozen=True):
    """A slowdown began (`ratio` > 1) or ended."""

    at: float
    ratio: float
    cause: str


class ReplayedAction(msgspec.Struct, frozen=True):
    """What would have been done, and why: dump (gather the evidence), restart, give_up, finish, kill, end."""

    at: float
    action: str
    why: str


class Replayed(msgspec.Struct, frozen=True):
    """What a replay found.  All times are seconds since the recording began, by the supervisor's clock."""

    verdicts: list[Verdict]
    slowdowns: list[Slow]
    actions: list[ReplayedAction]
    events: int


def replay_run(events: Iterable[Event], limits: Limits, orders: Iterable[Order] = ()) -> Replayed:
    """Return what a run would have announced and done over the events of its journal: the whole core again.

    `orders`: what the run did, with its times.  What followed an order then follows it now (report.replay).
    """
    world = World(events, orders)
    found, number = Notes(limits.detector, world.begins), 0
    run = fold.begin(world.begins)
    while (event := world.next(run)) is not None:
        before = {training.key: training.detector_state for training in trainings.judged(run)}
        run, actions = fold.advance(run, event, limits)
        number += 1
        for training in trainings.judged(run):
            if training.key in before:
                found.note(event.at, before[training.key], training.detector_state)
        for action in actions:
            world.follow(action, run)
        found.do(event.at, actions, run)
    return Replayed(found.verdicts, found.slowdowns, found.actions, number)


class Notes:
    """Collects the changes of the opinion."""

    def __init__(self, limits: DetectorLimits, began: float = 0.0) -> None:
        self._limits, self._began = limits, began
        self.verdicts: list[Verdict] = []
        self.slowdowns: list[Slow] = []
        self.actions: list[ReplayedAction] = []

    def note(self, at: float, before: DetectorState, after: DetectorState) -> None:
        """Take the states of one detector around an event."""
        old, new = before.judgement, after.judgement
        if (new.slow > 1.0) != (old.slow > 1.0):
            self.slowdowns.append(Slow(round(at - self._began, 3), round(new.slow, 2), new.slow_cause))
        if new.step == old.step or (new.step not in _TOLD and old.step != "stopped"):
            return
        due = detector.act_at(after, self._limits)
        seen = old if new.step in ("recovering", "healthy") else new  # a recovery ends what was there before
        self.verdicts.append(Verdict(
            at=round(at - self._began, 3),
            step=_TOLD.get(new.step, "recovered"),  # healthy at once: it was continued from outside
            verdict=new.step,
            cause="stopped" if after.evidence.state == "stopped" else seen.evidence,
            row=seen.row,
            phase=seen.phase,
            gap=round(seen.gap, 2),
            threshold=limit(round(seen.threshold, 2)),
            certain=new.certain,
            act_at=None if due is None else round(due - self._began, 3),
        ))  # fmt: skip

    def do(self, at: float, actions: Iterable[Action], run: Run) -> None:
        """Take what the core wants done to the training; most of its actions only announce."""
        for action in actions:
            match action:
                case Collect(incident=incident) if incident:
                    seen = run.detector_state.judgement
                    deed, why = "dump", _why(seen.evidence, seen.gap, seen.threshold)
                case Signal(name="TERM") if run.current.decision is not None:
                    deed, why = run.current.decision.action, run.current.decision.why
                case Signal(name="KILL"):
                    deed, why = "kill", "it did not end in time"
                case Conclude(code=code, why=end):
                    deed, why = "end", f"exit code {code}: {end}"
                case _:
                    continue
            self.actions.append(ReplayedAction(round(at - self._began, 3), deed, why))


def _why(evidence: str, gap: float, threshold: float | None) -> str:
    bound = None if threshold is None else limit(threshold)
    shown = NO_LIMIT if bound is None else f"the limit is {duration(bound)}"
    what = STOPPED if evidence == "stopped" else DOING.get(evidence, DOING["unknown"])
    return f"{what} for {duration(gap)}; {shown}"


STEPS = {"suspect": "would suspect a stall", "stalled": "would call it a stall", "recovered": "would see it recover"}
DEEDS = {
    "dump": "would collect the evidence",
    "restart": "would restart the training",
    "give_up": "would end the training and give up",
    "finish": "would end the training",
    "kill": "would send SIGKILL",
    "end": "would end the run",
}

SCHEMA = 2


class ReplayOutput(msgspec.Struct, frozen=True):
    """What a replay found: once, or with --compare for the settings as they are and for others.

    All times (`at`, `act_at`) are seconds since the recording began.
    """

    schema: int
    source: str  # the file that was replayed
    began: str | None  # UTC, ISO 8601; null if no event was recorded
    compared: list[ReplayResult] | msgspec.UnsetType = msgspec.UNSET  # with --compare, in place of all below
    settings: dict[str, str] | msgspec.UnsetType = msgspec.UNSET  # that differ from those of the run
    verdicts: list[Verdict] | msgspec.UnsetType = msgspec.UNSET
    slowdowns: list[Slow] | msgspec.UnsetType = msgspec.UNSET
    actions: list[ReplayedAction] | msgspec.UnsetType = msgspec.UNSET
    events: int | msgspec.UnsetType = msgspec.UNSET  # that were decided about


class ReplayResult(Replayed, frozen=True, kw_only=True):
    """What was found with some settings."""

    settings: dict[str, str]  # that differ from those of the run


def output(what: Recording, found: Sequence[tuple[dict[str, str], Replayed]], *, compare: bool) -> ReplayOutput:
    """Return what `--json` prints.  `found`: settings that differ, and what was found with them."""
    began = dt.datetime.fromtimestamp(what.walls[0][1], dt.UTC).isoformat() if what.walls else None
    if compare:
        results = [ReplayResult(**msgspec.structs.asdict(one), settings=settings) for settings, one in found]
        return ReplayOutput(SCHEMA, str(what.path), began, compared=results)
    settings, one = found[0]
    return ReplayOutput(SCHEMA, str(what.path), began, settings=settings, **msgspec.structs.asdict(one))


def title(what: Recording) -> str:
    """Return what is replayed and when it began; empty if no event was recorded."""
    if not what.walls:
        return ""
    here = dt.datetime.fromtimestamp(what.walls[0][1]).astimezone()
    is_of_a_run = what.path == RunDir(what.path.parent).journal
    name = what.path.parent.name if is_of_a_run else what.path.name
    return plain(f"{name}, begun on {here:%A, %d %B %Y, %H:%M:%S} {here.tzname()}")


def lines(what: Recording, result: Replayed) -> list[str]:
    """Return what would have been announced and done, a line each, in the order of time."""
    entries: list[Verdict | Slow | ReplayedAction] = [*result.verdicts, *result.slowdowns, *result.actions]
    entries.sort(key=lambda one: one.at)
    times = [f"+{elapsed(one.at)}" for one in entries]
    if what.walls and entries:
        at = [wall(what.walls[0][0] + one.at, what.walls) for one in entries]
        of_day = clock(what.walls[0][1], max(at))
        times = [f"{of_day(time)}  {since}" for time, since in zip(at, times, strict=True)]
    shown = []
    for time, one in zip(times, entries, strict=True):
        if isinstance(one, ReplayedAction):
            words = f"{DEEDS[one.action]}: {one.why}"
        elif isinstance(one, Slow):
            slow = f"slow: {one.ratio:.1f} x the usual batch time, {one.cause or 'cause unknown'}"
            words = slow if one.ratio > 1 else "not slow any more"
        elif one.step == "recovered":
            words = f"{STEPS[one.step]} after {duration(one.gap)}"
        else:
            doing = STOPPED if one.cause == "stopped" else DOING.get(one.cause, DOING["unknown"])
            silence = f"no progress for {duration(one.gap)} {place(one.row, one.phase)}".rstrip()
            words = f"{STEPS[one.step]}: {silence}; {doing}"
        shown.append(plain(f"{time}  {words}"))
    return shown or [f"nothing: healthy all along ({counted(result.events, 'event')})"]
