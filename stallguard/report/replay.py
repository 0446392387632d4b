"""Decides the past again: the core over recorded events, as lists of verdicts and actions.

The same pure core as in a live run, so a setting can be tried on last night's journal.
This module must not read files or print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from stallguard.core import fold, trainings
from stallguard.core.actions import Action, Collect, Conclude, Signal
from stallguard.core.detection import detector
from stallguard.core.detection.learned import Learned
from stallguard.core.detection.state import DetectorState
from stallguard.core.events import Event, Sampled
from stallguard.core.limits import Limits
from stallguard.core.messages import DOING, NO_LIMIT, STOPPED, duration, limit
from stallguard.core.readings import Process
from stallguard.core.run import Run
from stallguard.core.tuning import DetectorLimits
from stallguard.report.replay_world import Order, World

SLACK = 0.02  # seconds by which a recorded reading may come before the sampler's own period
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


def thinned(
    events: Iterable[Event], limits: DetectorLimits
) -> Iterator[tuple[Event, DetectorState, DetectorState]]:
    """Yield (event, state before, state after), with only those readings that a live run would take.

    The detector itself says how often it wants to see the process, and when with a census of its threads.
    """
    detector_state, taken = detector.start(limits), -1e9
    for event in events:
        seen = event
        if isinstance(event, Sampled) and isinstance(event.reading, Process):
            wanted = detector.wanted(detector_state, limits)
            if event.at - taken < wanted.period - SLACK:
                continue
            taken = event.at
            if not wanted.census:
                seen = replace(event, reading=replace(event.reading, census=None))
        before, detector_state = detector_state, detector.observe(detector_state, seen, limits)
        yield seen, before, detector_state


def replay(events: Iterable[Event], limits: DetectorLimits) -> Replayed:
    """Return what would have been announced and done over the events of a trace, recorded at full rate."""
    found = _Notes(limits)
    due: float | None = None
    for event, before, after in thinned(events, limits):
        found.count()
        verdict = found.note(event.at, before, after)
        if verdict is not None:
            due = verdict.act_at
            if verdict.step == "stalled":
                why = _why(verdict.cause, verdict.gap, verdict.threshold)
                found.actions.append(ReplayedAction(verdict.at, "dump", why))
        if due is not None and event.at >= due and after.judgement.step == "stalled":
            silent = after.clock.now - after.began
            sure = "the evidence is certain" if after.judgement.certain else "it did not recover by itself"
            why = f"silent for {silent:.1f} s, and {sure}"
            found.actions.append(ReplayedAction(round(event.at, 3), "restart", why))
            due = None
    return found.replayed()


def replay_run(
    events: Iterable[Event], limits: Limits, learned: Learned | None = None, orders: Iterable[Order] = ()
) -> Replayed:
    """Return what a run would have announced and done over the events of its journal: the whole core again.

    `orders`: what the run did, with its times.  What followed an order then follows it now (report.replay_world).
    """
    world = World(events, orders)
    found = _Notes(limits.detector, world.begins)
    run, _ = fold.begin(limits, world.begins, learned=learned)
    while (event := world.next(run)) is not None:
        before = {training.key: training.detector_state for training in trainings.judged(run)}
        run, actions = fold.advance(run, event, limits)
        found.count()
        for training in trainings.judged(run):
            if training.key in before:
                found.note(event.at, before[training.key], training.detector_state)
        for action in actions:
            world.follow(action, run)
        found.do(event.at, actions, run)
    return found.replayed()


class _Notes:
    """Collects the changes of the opinion."""

    def __init__(self, limits: DetectorLimits, began: float = 0.0) -> None:
        self._limits, self._began, self._events = limits, began, 0
        self._verdicts: list[Verdict] = []
        self._slowdowns: list[Slow] = []
        self.actions: list[ReplayedAction] = []

    def count(self) -> None:
        """Count an event."""
        self._events += 1

    def note(self, at: float, before: DetectorState, after: DetectorState) -> Verdict | None:
        """Take the states of one detector around an event; return the verdict where there is one."""
        old, new = before.judgement, after.judgement
        if (new.slow > 1.0) != (old.slow > 1.0):
            self._slowdowns.append(Slow(round(at - self._began, 3), round(new.slow, 2), new.slow_cause))
        if new.step == old.step or (new.step not in _TOLD and old.step != "stopped"):
            return None
        due = detector.act_at(after, self._limits)
        seen = old if new.step in ("recovering", "healthy") else new  # a recovery ends what was there before
        verdict = Verdict(
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
        )
        self._verdicts.append(verdict)
        return verdict

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

    def replayed(self) -> Replayed:
        """Return all of it."""
        return Replayed(self._verdicts, self._slowdowns, self.actions, self._events)


def _why(evidence: str, gap: float, threshold: float | None) -> str:
    bound = None if threshold is None else limit(threshold)
    shown = NO_LIMIT if bound is None else f"the limit is {duration(bound)}"
    what = STOPPED if evidence == "stopped" else DOING.get(evidence, DOING["unknown"])
    return f"{what} for {duration(gap)}; {shown}"
