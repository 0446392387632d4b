"""Where the time of a run went, as a value: seconds by category, and the sums and shares that stallguard shows of them.

core.ledger makes it.  Effective is the time that trained: batches, and what belongs to them, the first time that they
are trained.  Neither a start nor silence is.  Pure, and cheap to import; must not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import asdict


class Spent(msgspec.Struct, frozen=True):
    """Seconds of a run, by what it did.  The sum of all fields is its wall time."""

    # Steps, callbacks, and what lies between; waits for input too if they are not measured.
    training: float = 0.0
    input_wait: float = 0.0  # waiting for the next batch of the input
    validation: float = 0.0  # validation and prediction
    checkpoint: float = 0.0  # saving
    script: float = 0.0  # work of the script outside of training, after its first batch
    start_up: float = 0.0  # the first attempt, until its first batch
    restart: float = 0.0  # later attempts, each until its first batch
    # Silence that was not judged a stall: from a suspicion until it was cleared, or beyond the usual pause until the
    # process was ended or ended.
    suspected: float = 0.0
    stalled: float = 0.0  # silence that was a stall, from the last progress on
    collecting_evidence: float = 0.0  # of a stall
    ending: float = 0.0  # from SIGTERM until the process has ended; the unfinished batch of a crash
    backoff: float = 0.0  # between two attempts
    loss_not_finite: float = 0.0  # training, while its loss was not finite
    redone_batches: float = 0.0  # batches that were trained before, until the training is as far again
    machine_asleep: float = 0.0  # the machine slept
    stopped_by_user: float = 0.0  # the process was stopped by a signal (SIGSTOP, Ctrl-Z, a debugger)
    supervisor_absent: float = 0.0  # stallguard had been killed; what the training did then is not known
    unknown: float = 0.0  # no probe reported: what the run did is not known


CATEGORIES = Spent.__struct_fields__
# Batches that count, and what belongs to them.
EFFECTIVE = ("training", "input_wait", "validation", "checkpoint")
# What stalls, crashes and restarts cost.
LOST = ("restart", "stalled", "collecting_evidence", "ending", "backoff", "redone_batches")


def total(times: Spent, categories: Iterable[str] = CATEGORIES) -> float:
    """Return the seconds of some categories together; of all, the wall time."""
    each: dict[str, float] = asdict(times)
    return sum(each[name] for name in categories)


def effective(times: Spent) -> float | None:
    """Return the share of the wall time that trained; None if no batch was seen."""
    wall, trained = total(times), total(times, EFFECTIVE)
    is_known = 0.0 < wall < math.inf and (trained + times.script + times.loss_not_finite > 0.0)
    return trained / wall if is_known else None


def ineffective(times: Spent) -> list[tuple[str, float]]:
    """Return the other categories that took time, worst first."""
    rest = [(name, seconds) for name, seconds in asdict(times).items() if name not in EFFECTIVE and seconds]
    return sorted(rest, key=lambda pair: -pair[1])
