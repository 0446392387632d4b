"""The worker's part in the leases of the runs on its machine: its card renews them (fleet.machine_beat)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from stallguard.fleet import lease, records
from stallguard.fleet.joblog import perform
from stallguard.fleet.machine_beat import Held, Standing, WorkerSide
from stallguard.fleet.store import Store


class MachineLeases:
    """Of one worker process."""

    def __init__(self, store: Store, host: str, boot: str, now: Callable[[], float]) -> None:
        """`host`: the machine's name; `boot`: when it booted; `now`: seconds since, also those of a sleep."""
        self._store, self._now = store, now
        self._side, self._standing = WorkerSide(store.url, host, boot), Standing(host)
        self._asks: dict[str, int] = {}  # by job: how often its run was asked to look at its orders
        self._stands: frozenset[str] = frozenset()
        self._card = (0.0, 0.0)  # when the last one began and was answered

    def alive(self) -> dict[str, Held]:
        """Return the leases of runs that are alive on this machine."""
        return self._side.alive(self._now())

    def is_for(self, alive: Collection[str]) -> bool:
        """Return whether the last card stands for these leases alone."""
        return self._standing.is_for(alive)

    def write(self, card: bytes, alive: Collection[str], *, is_notified: bool) -> None:
        """Write the card, which renews the leases.  Raises StoreError.

        `is_notified`: whether the scheduler says that a job was stopped; else each run looks by itself.
        """
        began = self._now()
        self._stands = perform(self._standing.renew(alive, card), self._store)
        self._card = began, self._now()
        jobs = {records.job_of(name) for name in self._stands}
        self._asks = {job: self._asks.get(job, 0) + (not is_notified) for job in jobs}
        self._show()

    def ask(self, job: str) -> None:
        """Have the run of a job look at its orders now."""
        if job in self._asks:
            self._asks[job] += 1
            self._show()

    def _show(self) -> None:
        self._side.show(*self._card, {name: self._asks.get(records.job_of(name), 0) for name in self._stands})


def period(alive: Mapping[str, Held], most: float) -> float:
    """Return the seconds between two cards: `most`, or less for a run with a short lease."""
    return min([most, *(one.lasts * lease.BY_MACHINE for one in alive.values())])
