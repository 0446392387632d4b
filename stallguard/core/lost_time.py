"""The time that interruptions cost a run: the one source of every such figure.

A span begins with the last progress before a stall, a crash or a restart, and ends when the training is as far again
as it was: it holds the silence, the ending, the pause, the start of the next attempt and the batches that are trained
a second time.  The span of a stall that ends by itself ends there.  A process that was stopped and continued from
outside costs nothing.  The end of the run closes a span that a stall began; the end of the last attempt costs nothing
by itself, because nothing follows.

`after` takes the events and actions of a run in order.  The supervisor's core feeds it as they come, the report from
the journal, so both show the same seconds.  Pure; must not judge.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stallguard.core.actions import Announce, Conclude
from stallguard.core.events import Exited, Failed, Heartbeat, Launched, ProbeConnected

Position = tuple[int, int, int]  # fit, epoch, batch; of a loop without epochs: fit, -1, updates


class ProcessLoss(msgspec.Struct, frozen=True):
    """A process of the present attempt.  `entered`: the epoch that it began with, in which batches are skipped."""

    progress: float
    place: str = ""
    entered: int = -1
    position: Position | None = None
    size: int = 0  # batches of an epoch; 0: not known


class LostSpan(msgspec.Struct, frozen=True):
    """One interruption.  Seconds on the clock that `after` was given; `ended`: None while it lasts.

    `place`, `goal`: the training that was interrupted, and how far it was; `stalled`: a stall began it.
    """

    began: float
    ended: float | None = None
    stalled: bool = False
    place: str = ""
    goal: Position | None = None
    size: int = 0  # batches of an epoch of that training; 0: not known
    restarted: bool = False  # an attempt has begun since

    def seconds(self, now: float) -> float:
        """Return its length; `now`: the present, if it still lasts."""
        return max(0.0, (now if self.ended is None else self.ended) - self.began)


class LostTime(msgspec.Struct, frozen=True):
    """All interruptions so far."""

    spans: tuple[LostSpan, ...] = ()
    processes: dict[int, ProcessLoss] = {}
    launched: float = 0.0

    @property
    def open(self) -> LostSpan | None:
        """The interruption that lasts, if there is one."""
        return self.spans[-1] if self.spans and self.spans[-1].ended is None else None


NOTHING = LostTime()


def total(lost: LostTime, now: float) -> float:
    """Return the seconds lost until `now`."""
    return sum(span.seconds(now) for span in lost.spans)


def concluded(lost: LostTime, now: float) -> LostTime:
    """Return what is lost if the run ends now."""
    span = lost.open
    if span is None:
        return lost
    costs = span.stalled or span.restarted
    return replace(lost, spans=lost.spans[:-1] + ((replace(span, ended=now),) if costs else ()))


def moved(lost: LostTime, before: float, at: float) -> LostTime:
    """Return the same for another clock, which shows `at` when the old one showed `before`."""
    by = at - before
    spans = (
        replace(span, began=span.began + by, ended=None if span.ended is None else span.ended + by)
        for span in lost.spans
    )
    return LostTime(tuple(spans), {}, at)


def after(lost: LostTime, at: float, what: object) -> LostTime:
    """Return what is lost after an event or an action.  `at`: when it came, in seconds, never falling."""
    match what:
        case Heartbeat():
            return _on_heartbeat(lost, at, what)
        case ProbeConnected():
            before = lost.processes.get(what.pid, ProcessLoss(at))
            return _with(lost, what.pid, replace(before, place=what.place))
        case Launched():
            spans = lost.spans
            if (span := lost.open) is not None:
                spans = (*spans[:-1], replace(span, restarted=True))
            return LostTime(spans, {}, at)
        case Exited() | Failed():
            return _interrupted(lost, at, 0, stalled=False)
        case Announce(message="training.stalled"):
            pid = what.facts.get("pid", "")
            return _interrupted(lost, at, int(pid) if pid.isdecimal() else 0, stalled=True)
        case Announce(message="training.recovered"):
            return _closed(lost, at)
        case Announce(message="training.continued"):
            span = lost.open
            if span is None or span.restarted:
                return lost
            # A stopped process costs nothing; its gap begins when it continues.
            each = lost.processes.items()
            processes = {
                pid: replace(one, progress=at) if one.place == span.place else one for pid, one in each
            }
            return replace(lost, spans=lost.spans[:-1], processes=processes)
        case Conclude():
            return concluded(lost, at)
    return lost


def after_all(lost: LostTime, at: float, each: Sequence[object]) -> LostTime:
    """Return what is lost after several actions of one moment."""
    for what in each:
        lost = after(lost, at, what)
    return lost


def _with(lost: LostTime, pid: int, process: ProcessLoss) -> LostTime:
    return replace(lost, processes={**lost.processes, pid: process})


def _on_heartbeat(lost: LostTime, at: float, heartbeat: Heartbeat) -> LostTime:
    before = lost.processes.get(heartbeat.pid, ProcessLoss(at))
    entered = heartbeat.epoch if before.entered < 0 else before.entered
    position = before.position  # comparable between two attempts, as core.policy.attempts has it
    if heartbeat.beats and heartbeat.epoch < 0:
        position = heartbeat.fits, -1, max(heartbeat.iterations, heartbeat.beats + heartbeat.skipped)
    elif heartbeat.beats:
        skipped = heartbeat.skipped if heartbeat.epoch == entered else 0  # Keras counts from 0 after a resume
        position = heartbeat.fits, heartbeat.epoch, max(heartbeat.batch, 0) + skipped
    progress = at - max(0.0, heartbeat.at - heartbeat.progress_at)
    lost = _with(
        lost, heartbeat.pid, ProcessLoss(progress, before.place, entered, position, max(heartbeat.batches, 0))
    )
    span = lost.open
    if span is None or not span.restarted or position is None or span.place != before.place:
        return lost
    reached = span.goal is None or position >= span.goal
    return _closed(lost, at - max(0.0, heartbeat.at - heartbeat.beat_at)) if reached else lost


def _interrupted(lost: LostTime, at: float, pid: int, *, stalled: bool) -> LostTime:
    """Begin a span with the last progress of process `pid`, or of any; one that lasts goes on to its own goal."""
    span = lost.open
    if span is not None:
        stalled = stalled or span.stalled
        return replace(lost, spans=(*lost.spans[:-1], replace(span, stalled=stalled)))
    each = [lost.processes[pid]] if pid in lost.processes else list(lost.processes.values())
    last = max(
        each,
        key=lambda one: (one.position is not None, one.progress),
        default=ProcessLoss(lost.launched or at),
    )
    began = LostSpan(
        min(last.progress, at), stalled=stalled, place=last.place, goal=last.position, size=last.size
    )
    return replace(lost, spans=(*lost.spans, began))


def trained_again(lost: LostTime, pid: int, resumed: Position) -> int | None:
    """Return how many batches lie between the position at which process `pid` resumes and that of the interruption.

    None if that is not known.
    """
    span, process = lost.open, lost.processes.get(pid)
    if span is None or span.goal is None or process is None or span.place != process.place:
        return None
    fit, epoch, batch = span.goal
    known = fit == resumed[0] and epoch >= 0 and (span.size or epoch == resumed[1])
    return max(0, (epoch - resumed[1]) * span.size + batch - resumed[2]) if known else None


def _closed(lost: LostTime, at: float) -> LostTime:
    span = lost.open
    if span is None:
        return lost
    return replace(lost, spans=(*lost.spans[:-1], replace(span, ended=max(at, span.began))))
