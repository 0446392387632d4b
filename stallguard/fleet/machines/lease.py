"""The lease of a job as a state machine: who can have it, and when a holder must have ended its training.

What is safe, and what is only punctual, are two things:

- **Safe** is the job's log (joblog.py): an old holder cannot publish after a new claim, at any speed of any clock.
- **Punctual** is this module: that a training ends before another machine starts it again, so that no time is spent on
  two of them.  It relies on two machines measuring a minute about alike, and on nothing else: no clock is compared
  with that of another machine, and a clock on the wall is not read at all.

A holder renews by changing its key, or the worker of its machine does it by its card (machine_beat.py).  A reader
takes the lease if neither changed for `lasts` seconds.  Between two reads that were answered a sixth of that counts at
most: if the store was away for all, or the reader itself stood still, a holder that lives has a third of a lease to
renew before the reader overtakes it.

The holder counts from the moment at which its last successful renewal *began*; no reader can have seen that renewal
earlier.  So all orders of `judge` come before any reader is allowed to claim:

    age 0    1/3              1/2               0.6          0.7          0.8       0.9       1
    renewal  the next one of  the next one by   the holder   end with a   SIGTERM   SIGKILL   a reader
             a holder alone   its machine       does it      checkpoint                       can claim

A renewal is one write.  If it was answered within `SURE` of a lease after the one before began, no reader can have
claimed between them, so the log is not read.  After a longer pause (the machine slept, the process stood still, the
store was away) the holder must read the log before it goes on.

This module must not read a clock or the store.
"""

from __future__ import annotations

from typing import NamedTuple

LASTS = 120.0  # s
# Shares of a lease: after which a holder renews, its machine renews for it, and it does what its machine should have.
ALONE, BY_MACHINE, OVERDUE = 1 / 3, 1 / 2, 0.6
RETRY = 1 / 18  # after a renewal that failed
SURE = 0.9  # between two renewals without a look at the log
CHECKED = 10.0  # leases after which the log is read in any case
STILL = 1 / 6  # without a look at the time: then the holder stood still
LOOKS = 24  # of a reader, in a lease
# Shares of a lease at which a holder that cannot renew orders: an end after the batch, SIGTERM, SIGKILL.
LATE = (0.7, 0.8, 0.9)
# The same after it was fenced: its training is worth nothing to the job, but the run can keep its last checkpoint.
FENCED_SINCE = (0.0, 0.15, 0.4)
ORDERS = ("end", "term", "kill")
LONGEST_GAP = 1 / 6  # of a lease, that counts between two answered reads
SUSPECT = 0.6  # of a lease: a holder that lives and can write has renewed by then

RENEW, CHECK = "renew", "check"
HELD, ENDING, FENCED, OVER = "held", "ending", "fenced", "over"
# (state, what happened) -> state.  What is not here changes nothing.
TRANSITIONS = {
    (HELD, "late"): ENDING,
    (HELD, "fenced"): FENCED,
    (HELD, "over"): OVER,
    (ENDING, "fenced"): FENCED,
    (ENDING, "over"): OVER,
    (FENCED, "over"): OVER,
}


class Watch(NamedTuple):
    """What a reader knows of another's lease.  `quiet`: seconds without change, over reads that were answered."""

    mark: str
    quiet: float
    answered: float  # when the last read was answered


class Tenure(NamedTuple):
    """A holder's own view.  `renewed`: when its last successful renewal began; all times in its own seconds."""

    state: str
    number: int
    renewed: float
    fenced: float = 0.0  # when it noticed a later claim
    woke: float = 0.0  # when it was last able to run again after standing still
    ordered: int = 0  # how many of ORDERS it has given


class Upkeep(NamedTuple):
    """What a holder has done for its lease, in its own seconds.

    `renewed`: when the last successful renewal began; `checked`: when the log was read; `tried`: when the store was
    asked; `by_machine`: whether its machine made that renewal.
    """

    renewed: float
    checked: float
    tried: float
    by_machine: bool


def watched(before: Watch | None, mark: str, now: float, lasts: float) -> Watch:
    """Return the watch after a read.  `mark`: all that a holder changes, as one text; `now`: when it was answered."""
    if before is None or before.mark != mark:
        return Watch(mark, 0.0, now)
    gap = now - before.answered
    return Watch(mark, before.quiet + min(gap, lasts * LONGEST_GAP) if gap >= 0 else 0.0, now)


def has_run_out(watch: Watch, lasts: float) -> bool:
    """Return whether a reader can claim."""
    return watch.quiet >= lasts


def is_suspect(watch: Watch, lasts: float) -> bool:
    """Return whether a holder that lives and can write would have renewed: then the reader looks whether it can.

    A store that can be read and not written to makes each holder look silent.
    """
    return watch.quiet >= lasts * SUSPECT


def due(upkeep: Upkeep, now: float, lasts: float) -> str:
    """Return what a holder must do for its lease now: RENEW, CHECK (read the log), or "" for nothing."""
    if now < upkeep.tried + lasts * RETRY:
        return ""
    if now >= upkeep.renewed + lasts * (OVERDUE if upkeep.by_machine else ALONE):
        return RENEW
    return CHECK if now >= upkeep.checked + lasts * CHECKED else ""


def renewed(tenure: Tenure, began: float) -> Tenure:
    """Return the tenure after a renewal that succeeded.  An end that was ordered stays ordered."""
    return tenure._replace(renewed=max(tenure.renewed, began))


def is_unbroken(renewed: float, answered: float, lasts: float) -> bool:
    """Return whether no reader can have claimed between a renewal that began at `renewed` and the next one."""
    return answered - renewed <= lasts * SURE


def renewed_by_machine(tenure: Tenure, began: float, answered: float, lasts: float) -> Tenure:
    """Return the tenure after a card of the machine; after a pause none counts: the holder must read the log first."""
    if began <= tenure.renewed or not is_unbroken(tenure.renewed, answered, lasts):
        return tenure
    return renewed(tenure, began)


def moved(tenure: Tenure, event: str, now: float) -> Tenure:
    """Return the tenure after `event`: late, fenced, over."""
    state = TRANSITIONS.get((tenure.state, event), tenure.state)
    if state == tenure.state:
        return tenure
    changed = tenure._replace(state=state)
    return changed._replace(fenced=now, ordered=0) if state == FENCED else changed


def judge(tenure: Tenure, now: float, lasts: float) -> tuple[Tenure, tuple[str, ...]]:
    """Return the tenure and the orders that are due now, mildest first; each is given once.

    A holder that stood still (`woke`) has a sixth of a lease to renew before it orders anything: the training of a
    machine that slept stood still too, and what a frozen supervisor missed is missed already.
    """
    if tenure.state == OVER or now < tenure.woke + lasts * STILL:
        return tenure, ()
    if tenure.state == FENCED:
        due = sum(now - tenure.fenced >= share * lasts for share in FENCED_SINCE)
    else:
        due = sum(now - tenure.renewed >= share * lasts for share in LATE)
        tenure = moved(tenure, "late", now) if due else tenure
    orders = ORDERS[tenure.ordered : due]
    return tenure._replace(ordered=max(due, tenure.ordered)), orders
