"""The jobs of a fleet that are over, in one object a day: so nothing reads 100,000 logs to say what has been.

    archive/<day>    Day: the rows of the jobs that a scheduler found over on that day
    live             Live: the rows of all other jobs, if they are many; replaced as they change

Both are copies for those who read, and not signed.  A scheduler looks at no job that a day names, so who can write to
the store can keep a job from being started, as by damaging it; none is started by them.  What lets a job be trained
stays where it was: the log of a job is never removed, so a name is not used again, a finished job is not trained again,
and an old order that is put back is refused.  A day that is lost or damaged is made again: a scheduler that starts
reads each job that is in no day.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.jobs import job_table
from stallguard.fleet.jobs.job_table import RUNNING, Fleet, JobRow
from stallguard.fleet.machines.machine_list import READERS, SILENT, as_seen, cards_of
from stallguard.fleet.store import Store, each, entry, orders
from stallguard.fleet.store.orders import JOB_NAME
from stallguard.fleet.store.records import BEATS, OF, time_of
from stallguard.fleet.store.signing import Signatures

SCHEMA = 1
FOLDER, LIVE = "archive", "live"
ARCHIVES = 60.0  # s between two additions to the archive
# s between two tables of what is not over, if it has changed, and in any case
LIVE_EVERY, LIVE_AT_LEAST = 15.0, 60.0
MANY = 200  # jobs that are not over, from which on there is such a table: fewer are read one by one within a second
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
T = TypeVar("T", "Day", "Live", "_Names")


class Day(msgspec.Struct, frozen=True):
    """Jobs that are over."""

    schema: int
    jobs: list[JobRow]


class Live(msgspec.Struct, frozen=True):
    """Jobs that are not over.  `at`: when the scheduler wrote it, RFC 3339, by its clock."""

    schema: int
    at: str
    jobs: list[JobRow]


class _Name(msgspec.Struct, frozen=True):
    job: str


class _Names(msgspec.Struct, frozen=True):
    schema: int
    jobs: list[_Name]


def names(store: Store) -> set[str]:
    """Return the names of all jobs in it.  Raises StoreError."""
    found = (decoded(data, _Names) for data in _days(store))
    return {one.job for day in found if day is not None for one in day.jobs}


def rows(store: Store) -> dict[str, JobRow]:
    """Return all jobs in it, by name.  Raises StoreError."""
    found = (decoded(data, Day) for data in _days(store))
    return {one.job: one for day in found if day is not None for one in day.jobs if JOB_NAME.fullmatch(one.job)}


def add(store: Store, day: str, over: Iterable[JobRow]) -> None:
    """Add jobs to a day; those that are there are replaced.  `day`: as 2026-06-10.  Raises StoreError.

    Two schedulers that add at once can lose what one of them added: the next start finds it.
    """
    key = f"{FOLDER}/{day}"
    before = decoded(store.read(key), Day)
    made = {one.job: one for one in (before.jobs if before else ())} | {one.job: one for one in over}
    store.replace(key, jsontext.exact(Day(SCHEMA, list(made.values()))))


class Tables:
    """What a scheduler keeps of both for those who read: it adds what is over, and replaces the other as it changes."""

    def __init__(self) -> None:
        self._over: dict[str, JobRow] = {}  # not in the archive yet
        self._archives_at = self._live_at = self._lived = 0.0
        self._live: Sequence[tuple[str, ...]] | None = None  # what the last table was made of

    def add(self, row: JobRow) -> None:
        """Have a job that is over added to the archive soon."""
        self._over[row.job] = row

    def archive(self, store: Store, now: float, at: str) -> bool:
        """Add what is over to the archive, if it is time; return whether that was done.  Raises StoreError.

        `now`: in seconds; `at`: the same for people.
        """
        if not self._over or now < self._archives_at:
            return False
        self._archives_at = now + ARCHIVES
        add(store, at[:10], self._over.values())
        self._over.clear()
        return True

    def keep(
        self, store: Store, now: float, at: str, names: Collection[str], mark: Callable[[str], tuple[str, ...]],
        row: Callable[[str], JobRow],
    ) -> bool:  # fmt: skip
        """Keep the table of what is not over, if there is much; return whether a reader finds all that is known.

        `names`: of the jobs; `mark`: returns what the row of one follows from; `row`: makes it.  Raises StoreError.
        """
        if len(names) < MANY:
            if self._live is not None:
                store.remove(LIVE)
                self._live = None
            return True
        if now < self._live_at:
            return False
        self._live_at = now + LIVE_EVERY
        marks = [mark(name) for name in names]
        if marks != self._live or now >= self._lived + LIVE_AT_LEAST:
            store.replace(LIVE, jsontext.exact(Live(SCHEMA, at, [row(name) for name in names])))
            self._live, self._lived = marks, now
        return True


def fleet(store: Store, signatures: Signatures | None, only: str = "", *, is_alive: bool = False) -> Fleet:
    """Return what the store has, as job_table.read does, with as few requests as its tables allow.

    `is_alive`: only jobs that run or wait.  Raises StoreError.
    """
    if only:
        return job_table.read(store, signatures, only)
    table = _live(store, dt.datetime.now(dt.UTC))
    # A job that is over can have been begun again by hand: then its holder renews.
    begun = {name.partition(OF)[0] for name in store.names(BEATS)}
    if table is None:
        over = {} if is_alive else rows(store)
        left_out = names(store) if is_alive else set[str]()
        these = {*store.names("jobs")} - (left_out - begun)
        return job_table.read(
            store, signatures, "", {name: one for name, one in over.items() if name not in begun}, these
        )
    ordered = {note.partition(OF)[0] for note in store.names(orders.NEWS)}
    known = {one.job: one for one in _reported(store, signatures, table) if one.job not in ordered}
    if is_alive:
        these = known.keys() | begun | ordered
        if these == known.keys():  # no other card of a machine is needed
            return Fleet(list(known.values()), [], [], sorted(known))
        return job_table.read(store, signatures, "", known, these)
    known |= {name: one for name, one in rows(store).items() if name not in begun | ordered}
    return job_table.read(store, signatures, "", known)


def _reported(store: Store, signatures: Signatures | None, table: Sequence[JobRow]) -> list[JobRow]:
    """Return rows with what the machines report of the runs that live."""
    running, now = [one for one in table if one.state == RUNNING], dt.datetime.now(dt.UTC)
    hosts = sorted({one.machine for one in running if orders.host_name(one.machine) == one.machine})
    cards = {card.host: as_seen(card, now) for card in cards_of(store, hosts, signatures)}

    def reported(one: JobRow) -> JobRow:
        of = [cards[one.machine]] if one.machine in cards else []
        found = job_table.status_of(store, one.job, one.number, one.machine, of)
        return replace(one, heard=found.at, status=found.status) if found else one

    return [*(one for one in table if one.state != RUNNING), *each(reported, running, READERS)]


def _live(store: Store, now: dt.datetime) -> list[JobRow] | None:
    """Return the table of the jobs that are not over, None if no scheduler keeps it at present."""
    found = decoded(entry(store, LIVE), Live)
    at = time_of(found.at) if found is not None else None
    if found is None or at is None or abs((now - at).total_seconds()) > SILENT:
        return None
    return [one for one in found.jobs if JOB_NAME.fullmatch(one.job)]


def _days(store: Store) -> list[bytes | None]:
    days = sorted(name for name in store.names(FOLDER) if _DAY.fullmatch(name))
    return each(lambda day: entry(store, f"{FOLDER}/{day}"), days, READERS)


def decoded(data: bytes | None, kind: type[T]) -> T | None:
    """Return a table; None if there is none, or one that cannot be read: it is only a copy."""
    try:
        found = jsontext.decode(data or b"", kind)
    except UNREADABLE:
        return None
    return found if found.schema == SCHEMA else None
