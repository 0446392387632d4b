"""One renewal for all jobs of a machine: the card of its worker, which is written anyway, stands for their leases too.

A run says in a file of this machine each few seconds that it has a lease and is alive (`show`).  The worker
puts a mark beside the beats of that lease, beats/<job>@<number>@<host>, and from then on each new card of the machine
renews the lease; the worker says in another file when the last card began (`tell`).  So a machine with jobs
makes as many requests as one without, and the listing of the beats shows for whom a card counts.

**A card must not keep a lease for a run that is dead.**  Before each card the worker looks which runs are alive, and
removes the marks of all others first; if that fails there is no card.  A worker that begins lists all marks of its
machine, also those of a worker before it, and removes those of runs that are not alive.  A request whose answer was
lost can be done later: so after an error the marks are listed again before each of the next DOUBTS cards.

**A run does not depend on its worker.**  If the worker is dead, hangs or leaves, the card does not change, and the run
renews its own key in time (keeper.py).  A reader counts a change of either.

The card has how each of these runs stands too, so that this costs no request: the run writes it into a third file
(`report`).  A run for which no card stands puts it into the store itself.

`Standing.renew` makes steps as in joblog.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.machines import lease
from stallguard.fleet.store import Store, StoreError, records
from stallguard.fleet.store.joblog import Steps, StoreRequest, perform
from stallguard.fleet.store.orders import RunStatus
from stallguard.storage import paths, private

STATUS_MAX = 1 << 16  # bytes of how one run stands: a card has that of each run of its machine
DOUBTS = 10  # cards before which the marks are listed, after an error
# Shares of a lease, and seconds, after which a run that says nothing is not alive.
FRESH, FRESH_LEAST = 1 / 16, 2.0
T = TypeVar("T", bound="_OfMachine")


class _OfMachine(msgspec.Struct, frozen=True):
    """`store`: its URL; `host`: as in the claim; `boot`: when the machine booted."""

    store: str
    host: str
    boot: str


class HeldLease(_OfMachine, frozen=True):
    """What a run says of its lease.  `at`: when, in seconds since the machine booted."""

    job: str
    number: int
    lasts: float
    at: float

    @property
    def name(self) -> str:
        """Its name in the folder of all beats."""
        return records.beat_name(self.job, self.number)


class Renewals(_OfMachine, frozen=True):
    """What a worker says of its last card.  `began`, `answered`: in seconds as in HeldLease.

    `asks`: for whom it stands: names in the folder of all beats, each with a number that is another one when that run
    is to look whether its job was stopped.
    """

    began: float
    answered: float
    asks: dict[str, int] = {}


class Reported(_OfMachine, frozen=True):
    """What a run says of how it stands.  `name`: as in HeldLease."""

    name: str
    status: RunStatus


class Standing:
    """For which leases the card of a machine stands."""

    def __init__(self, host: str) -> None:
        """`host`: the machine's name in the fleet."""
        self._host = host
        self._marked: set[str] = set()
        self._tried: set[str] = set()  # marks that can be there
        self._doubts = 1  # a worker before this one can have left marks

    def is_for(self, alive: Collection[str]) -> bool:
        """Return whether all that is known stands for these leases and for no other."""
        return self._tried == self._marked == set(alive)

    def renew(self, alive: Collection[str], card: bytes) -> Steps[frozenset[str]]:
        """Write the card; return for which leases it stands.  `alive`: names of leases whose runs live.

        Raises StoreError; then no lease is renewed that was not before.
        """
        try:
            if self._doubts:
                listed = map(records.beat_of, (yield StoreRequest("names", records.BEATS)))
                own = (one for one in listed if one is not None and one.host == self._host)
                self._marked = {records.beat_name(one.job, one.number) for one in own}
                self._tried |= self._marked
            for name in sorted(self._tried - set(alive)):
                yield StoreRequest("remove", records.mark_key(name, self._host))
                self._tried.discard(name)
                self._marked.discard(name)
            for name in sorted(set(alive) - self._marked):
                self._tried.add(name)
                yield StoreRequest("replace", records.mark_key(name, self._host), b"1")
                self._marked.add(name)
        except StoreError:
            self._doubts = DOUBTS
            raise
        yield StoreRequest("replace", f"{records.CARDS}/{self._host}", card)
        self._doubts = max(0, self._doubts - 1)
        return frozenset(self._marked)


class MachineFiles:
    """By which the runs of a machine and its worker know of each other: those of one store and one boot."""

    def __init__(self, store: str, host: str, boot: str) -> None:
        """As for HeldLease."""
        self._mine = store, host, boot
        home = paths.home() / "fleet"
        self._held, self._reported, self._renewals = home / "held", home / "reported", home / "renewals"

    def show(self, job: str, number: int, lasts: float, now: float) -> None:
        """Say that a run has its lease.  A file that cannot be written is like no worker."""
        _write(self._held / job, HeldLease(*self._mine, job, number, lasts, now))

    def report(self, job: str, number: int, status: RunStatus) -> bool:
        """Say how a run stands; return whether the next card of this machine has it."""
        name, found = records.beat_name(job, number), self.renewals()
        has_card = found is not None and name in found.asks and len(jsontext.exact(status)) <= STATUS_MAX
        if has_card and _write(self._reported / job, Reported(*self._mine, name, status)):
            return True
        with contextlib.suppress(OSError):  # an old one must not stay in the card
            (self._reported / job).unlink(missing_ok=True)
        return False

    def leave(self, job: str) -> None:
        """Say nothing more of a run."""
        for folder in (self._held, self._reported):
            with contextlib.suppress(OSError):
                (folder / job).unlink(missing_ok=True)

    def renewals(self) -> Renewals | None:
        """Return what the worker says of its last card; None if there is none."""
        return self._read(self._renewals, Renewals)

    def alive(self, now: float) -> dict[str, HeldLease]:
        """Return the leases whose runs are alive, by their names in the folder of all beats."""
        found = dict[str, HeldLease]()
        with contextlib.suppress(OSError):
            for path in sorted(self._held.iterdir()):
                one = None if path.name.startswith(".") else self._read(path, HeldLease)
                if one is None or one.job != path.name:
                    continue
                if 0 <= now - one.at <= max(FRESH_LEAST, one.lasts * FRESH):
                    found[one.name] = one
        return found

    def statuses(self, alive: Collection[str]) -> dict[str, RunStatus]:
        """Return how the runs with these names stand; what is not known is not there."""
        read = (self._read(self._reported / records.job_of(name), Reported) for name in alive)
        return {one.name: one.status for one in read if one is not None and one.name in alive}

    def tell(self, began: float, answered: float, asks: Mapping[str, int]) -> None:
        """Say when the last card began and was answered, and for whom it stands."""
        _write(self._renewals, Renewals(*self._mine, began, answered, dict(asks)))

    def _read(self, path: Path, kind: type[T]) -> T | None:
        with contextlib.suppress(OSError, *UNREADABLE):
            found = jsontext.decode(path.read_bytes(), kind)
            if (found.store, found.host, found.boot) == self._mine:
                return found
        return None


def _write(path: Path, value: msgspec.Struct) -> bool:
    """Write a file whole, without waiting for the disk: after a loss of power none of it counts.

    Return whether that was possible.
    """
    with contextlib.suppress(OSError):
        private.ensure(path.parent)
        private.replace(path, jsontext.exact(value))
        return True
    return False


class MachineLeases:
    """The leases of the runs on a machine, for its worker process."""

    def __init__(self, store: Store, host: str, boot: str, now: Callable[[], float]) -> None:
        """`host`: the machine's name; `boot`: when it booted; `now`: seconds since, also those of a sleep."""
        self._store, self._now = store, now
        self._files, self._standing = MachineFiles(store.url, host, boot), Standing(host)
        self._asks: dict[str, int] = {}  # by job: how often its run was asked to look at its orders
        self._stands: frozenset[str] = frozenset()
        self._card = (0.0, 0.0)  # when the last one began and was answered

    def alive(self) -> dict[str, HeldLease]:
        """Return the leases of runs that are alive on this machine."""
        return self._files.alive(self._now())

    def statuses(self, alive: Collection[str]) -> dict[str, RunStatus]:
        """Return how these runs stand, by the names of their leases."""
        return self._files.statuses(alive)

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
        self._files.tell(*self._card, {name: self._asks.get(records.job_of(name), 0) for name in self._stands})


def period(alive: Mapping[str, HeldLease], most: float) -> float:
    """Return the seconds between two cards: `most`, or less for a run with a short lease."""
    return min([most, *(one.lasts * lease.BY_MACHINE for one in alive.values())])
