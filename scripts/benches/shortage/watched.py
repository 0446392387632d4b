"""A simulated night under the core: what core.memory_ahead does, and when.

The history and the run are the core's own.  Only what concerns memory is called at each reading, because a thousand
hours through the whole fold take an hour; tests/core/test_memory_ahead.py goes through all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from shortage.nights import EVERY, Night
from stallguard.core import fold, memory_ahead
from stallguard.core.actions import Announce, Ask
from stallguard.core.events import Event, Heartbeat, Launched, ProbeConnected, Sampled
from stallguard.core.history import remember
from stallguard.core.limits import Limits
from stallguard.core.readings import Memory, Process
from stallguard.core.run import Run, with_attempt

LIMITS = Limits()
MEMORY_EVERY = 15.0  # seconds between two readings of the memory in a calm run
PID = 7
FIRST = Heartbeat(at=0.0, attempt=1, pid=PID, trains=True, beats=1, saves=1, phase="step")


class Seen(NamedTuple):
    """When what was done, in seconds of the night; None: never.  `why`: of the restart."""

    told: float | None
    asked: float | None
    ended: float | None
    halved: bool = False
    left: bool = False  # announced that the training is not started again


def watch(night: Night) -> Seen:
    """Play a night until the training is ended for memory, or its memory is used up."""
    run = _begun(int(night.epochs[0]))
    told = asked = ended = None
    halved = left = False
    last = len(night.footprint) if night.over is None else night.over
    for index in range(last):
        at = index * EVERY
        run = _read(run, night, index, at)
        run, actions = memory_ahead.look(run, LIMITS)
        names = [one.message for one in actions if isinstance(one, Announce)]
        told = at if told is None and {"memory.trend", "memory.others"} & set(names) else told
        left = left or "memory.left_alone" in names
        commands = [one.command for one in actions if isinstance(one, Ask)]
        if "save" in commands:
            asked = at if asked is None else asked
            run = _saved(run)
        if "stop" in commands:
            ended, halved = at, run.current.decision is not None and run.current.decision.slices > 1
            break
    return Seen(told, asked, ended, halved, left)


def _begun(epoch: int) -> Run:
    run = fold.begin(0.0)
    events: tuple[Event, ...] = (
        Launched(at=0.0, attempt=1, pid=PID),
        ProbeConnected(at=0.0, attempt=1, pid=PID, hooks=("checkpoint",)),
        replace(FIRST, epoch=epoch),
    )
    for event in events:
        run, _ = fold.advance(run, event, LIMITS)
    return run


def _read(run: Run, night: Night, index: int, at: float) -> Run:
    training = run.training
    before = training.heartbeat or FIRST
    footprint = int(night.footprint[index])
    epoch = int(night.epochs[index])
    events: list[Event] = [
        Sampled(at=at, reading=Process(pid=PID, footprint=footprint)),
        replace(before, at=at, beats=index + 1, epoch=epoch, batch=index),
    ]
    if run.current.memory.is_near or at % MEMORY_EVERY == 0:
        available = max(0, int(night.total - night.others[index] - footprint))
        events.append(Sampled(at=at, reading=Memory(total=int(night.total), available=available)))
    history = training.history
    for event in events:
        history = remember(history, event)
    changed = replace(training, history=history)
    return replace(
        with_attempt(
            run, trainings=tuple(changed if one.key == training.key else one for one in run.current.trainings)
        ),
        now=at,
    )


def _saved(run: Run) -> Run:
    """Return the run after the training has made the checkpoint that it was asked for."""
    training = run.training
    before = training.heartbeat or FIRST
    heartbeat = replace(before, saves=before.saves + 1)
    changed = replace(training, history=replace(training.history, heartbeat=heartbeat))
    return with_attempt(
        run, trainings=tuple(changed if one.key == training.key else one for one in run.current.trainings)
    )
