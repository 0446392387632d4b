"""Decides the past again: the detector over recorded events, told as a list of verdicts.

The same pure core as in a live run, so a setting can be tried on last night's journal or on a recorded trace.
This module may not read files or print.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from stallguard.core import detector
from stallguard.core.detector_limits import DetectorLimits
from stallguard.core.events import Event, Launched, Sampled
from stallguard.core.judge import Judge
from stallguard.core.learned import Learned
from stallguard.core.readings import Process
from stallguard.core.verdicts import Judgement

SLACK = 0.02  # seconds by which a recorded reading may come before the sampler's own period
_TOLD = {"suspect": "suspect", "stalled": "stalled", "stopped": "stalled", "recovering": "recovered"}


class Verdict(msgspec.Struct, frozen=True):
    """One change of the opinion.  `at`: seconds on the recording's clock; `gap`, `threshold`: seconds.

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
    threshold: float
    certain: bool = False
    act_at: float | None = None


class Slow(msgspec.Struct, frozen=True):
    """A slowdown began (`ratio` > 1) or ended."""

    at: float
    ratio: float
    cause: str


class Deed(msgspec.Struct, frozen=True):
    """What would have been done: dump (gather the evidence) or restart, and why."""

    at: float
    action: str
    why: str


class Replayed(msgspec.Struct, frozen=True):
    """What a replay found."""

    verdicts: list[Verdict]
    slowdowns: list[Slow]
    actions: list[Deed]
    events: int


def judgements(
    events: Iterable[Event], limits: DetectorLimits, learned: Learned | None = None
) -> Iterator[tuple[Event, Judge, Judge]]:
    """Yield (event, state before, state after) for every event; a new attempt starts wise by the one before."""
    judge = detector.start(limits, learned)
    for event in events:
        before = judge
        if isinstance(event, Launched) and event.attempt > 1:
            before = detector.start(limits, detector.export(judge))
        judge = detector.observe(before, event, limits)
        yield event, before, judge


def thinned(events: Iterable[Event], limits: DetectorLimits) -> Iterator[tuple[Event, Judge, Judge]]:
    """Like `judgements`, for recordings made at full rate: keep only the readings that a live run would take.

    The detector itself says how often it wants to see the process, and when with a census of its threads.
    """
    judge, taken = detector.start(limits), -1e9
    for event in events:
        seen = event
        if isinstance(event, Sampled) and isinstance(event.reading, Process):
            wanted = detector.wanted(judge, limits)
            if event.at - taken < wanted.period - SLACK:
                continue
            taken = event.at
            if not wanted.census:
                seen = replace(event, reading=replace(event.reading, census=None))
        before, judge = judge, detector.observe(judge, seen, limits)
        yield seen, before, judge


def replay(steps: Iterable[tuple[Event, Judge, Judge]], limits: DetectorLimits) -> Replayed:
    """Return what would have been told and done over `judgements` or `thinned` events."""
    verdicts: list[Verdict] = []
    slowdowns: list[Slow] = []
    actions: list[Deed] = []
    count, due = 0, None
    for event, before, after in steps:
        count += 1
        old, new = before.judgement, after.judgement
        if new.step != old.step and new.step in _TOLD:
            verdicts.append(_verdict(event.at, old, new, after, limits))
            due = detector.act_at(after, limits)
            actions += [_dump(verdicts[-1])] if verdicts[-1].step == "stalled" else []
        if due is not None and (new.step != "stalled" or event.at >= due):
            actions += [_restart(event.at, after)] if new.step == "stalled" else []
            due = None
        if (new.slow > 1.0) != (old.slow > 1.0):
            slowdowns.append(Slow(round(event.at, 3), round(new.slow, 2), new.slow_cause))
    return Replayed(verdicts, slowdowns, actions, count)


def _dump(verdict: Verdict) -> Deed:
    return Deed(
        verdict.at, "dump", f"{verdict.cause} for {verdict.gap:.1f} s, threshold {verdict.threshold:.1f} s"
    )


def _restart(at: float, judge: Judge) -> Deed:
    silent = judge.clock.now - judge.began
    sure = "the evidence is certain" if judge.judgement.certain else "it did not recover by itself"
    return Deed(round(at, 3), "restart", f"silent for {silent:.1f} s, and {sure}")


def _verdict(at: float, old: Judgement, new: Judgement, after: Judge, limits: DetectorLimits) -> Verdict:
    ended = new.step == "recovering"
    seen = old if ended else new  # a recovery ends what was there before
    due = detector.act_at(after, limits)
    return Verdict(
        at=round(at, 3),
        step=_TOLD[new.step],
        verdict=new.step,
        cause="stopped" if after.evidence.state == "stopped" else seen.evidence,
        row=seen.row,
        phase=seen.phase,
        gap=round(seen.gap, 2),
        threshold=round(seen.threshold, 2),
        certain=new.certain,
        act_at=None if due is None else round(due, 3),
    )
