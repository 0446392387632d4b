"""How a machine gets a job: at once if it is free, after a silence if its holder is gone, not at all if it is done.

Whether a holder lives cannot be asked, only watched: a live one, or its machine, changes a key within half of the
lease, so a second start of a job that is being trained says within that time who has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stallguard.fleet import joblog, lease
from stallguard.fleet.joblog import Tail, perform
from stallguard.fleet.lease import Watch
from stallguard.fleet.records import Claim, Holder, Outcome
from stallguard.fleet.store import Store


class HeldElsewhere(Exception):
    """The job has a holder that renews its lease."""

    def __init__(self, by: Claim) -> None:
        super().__init__(by.holder.host)
        self.by = by


class Taken(NamedTuple):
    """The lease is ours.  `began`: when the claim was made, by `now`."""

    tail: Tail
    began: float


class LeaseWatch(NamedTuple):
    """What a watch needs.

    `now`: seconds that also pass in a sleep; `says`: called once with the holder watched; `writes`: writes something to
    the store, and raises StoreError if that is not possible: then no holder can renew, and its silence says nothing.
    """

    now: Callable[[], float]
    sleep: Callable[[float], None]
    says: Callable[[Claim], None]
    writes: Callable[[], None]


def take(
    store: Store, job: str, holder: Holder, at: Callable[[], str], watching: LeaseWatch, quiet: str = ""
) -> Taken | Outcome:
    """Return the lease, or the outcome of a job that is done.  Raises HeldElsewhere, and StoreError.

    `at`: the time for people; `quiet`: the mark of a lease (joblog.look) that another reader has watched run out: if it
    is still the same, its time need not be waited for again.
    """
    tail, watch = perform(joblog.read_end(job), store), None
    while True:
        if tail.outcome is not None and tail.outcome.is_last:
            return tail.outcome
        if tail.is_free or (watch is not None and lease.has_run_out(watch, _lasts(tail))):
            began = watching.now()
            tail, won = perform(joblog.claim(job, tail, holder, at()), store)
            if won:
                return Taken(tail, began)
            watch = None
            continue
        before = watch
        tail, mark = perform(joblog.look(job, tail), store)
        lasts = _lasts(tail)
        watch = (
            Watch(mark, lasts, watching.now())
            if mark == quiet
            else lease.watched(before, mark, watching.now(), lasts)
        )
        if tail.claim is None or tail.is_free or mark == quiet:
            continue
        if lease.is_suspect(watch, lasts):
            watching.writes()
        if lease.has_run_out(watch, lasts):
            continue
        if before is None:
            watching.says(tail.claim)
        elif watch.mark != before.mark:
            raise HeldElsewhere(tail.claim)
        watching.sleep(lasts / lease.LOOKS)


def _lasts(tail: Tail) -> float:
    """Return the seconds of the holder's lease: it says itself how soon it renews."""
    return tail.claim.holder.lasts if tail.claim else lease.LASTS
