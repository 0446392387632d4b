"""How far each training of an attempt is, and when a later attempt is as far as the interrupted one was.

Until then it trains batches a second time.  Positions of two attempts compare by place (probe/process_key.py), as in
core.policy.attempts.  Pure; must not count time: core.ledger does.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from stallguard.core.events import Heartbeat

Position = tuple[int, int, int]  # fit, epoch, batch; of a loop without epochs: fit, -1, updates


class ProcessPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process of the present attempt."""

    place: str = ""
    position: Position | None = None
    size: int = 0  # batches of an epoch; 0: not known
    progress: float = 0.0  # when it last made progress, seconds on the supervisor's clock
    input_s: float = 0.0  # seconds that it has waited for input so far


class Interruption(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that ended before the run did.  `goal`: how far its training was; None: not known."""

    place: str = ""
    goal: Position | None = None
    size: int = 0  # batches of an epoch of that training; 0: not known


def moved_on(process: ProcessPosition, heartbeat: Heartbeat) -> ProcessPosition:
    """Return where a process is after a record of its probe."""
    position = process.position
    if heartbeat.beats and heartbeat.epoch < 0:
        position = heartbeat.fits, -1, max(heartbeat.iterations, heartbeat.beats + heartbeat.skipped)
    elif heartbeat.beats:
        position = heartbeat.fits, heartbeat.epoch, max(heartbeat.batch, 0)
    return replace(
        process, position=position, size=max(heartbeat.batches, 0),
        progress=heartbeat.progress_at, input_s=heartbeat.input_s,
    )  # fmt: skip


def interrupted(processes: Mapping[int, ProcessPosition], pid: int) -> Interruption:
    """Return what an attempt came to when it ended: process `pid`, or the one with the last progress."""
    each = [processes[pid]] if pid in processes else list(processes.values())
    last = max(each, key=lambda one: (one.position is not None, one.progress), default=ProcessPosition())
    return Interruption(last.place, last.position, last.size)


def is_caught_up(interruption: Interruption, process: ProcessPosition) -> bool:
    """Return whether a process of a later attempt is as far as the interrupted one was."""
    if process.position is None or interruption.goal is None:
        return process.position is not None  # the attempt before came to no batch: none is trained again
    return process.place == interruption.place and process.position >= interruption.goal


def trained_again(interruption: Interruption, process: ProcessPosition, resumed: Position) -> int | None:
    """Return how many batches lie between the position at which a process resumes and the interruption.

    None if that is not known.
    """
    if interruption.goal is None or interruption.place != process.place:
        return None
    fit, epoch, batch = interruption.goal
    known = fit == resumed[0] and epoch >= 0 and (interruption.size or epoch == resumed[1])
    return max(0, (epoch - resumed[1]) * interruption.size + batch - resumed[2]) if known else None
