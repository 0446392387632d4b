"""How verbs see the jobs of a fleet: which store, what it has, which job a name means, and its run as a local copy.

A machine is in a fleet if it has a fleet file (membership.py), or if a verb is given a store.  Nothing here waits
longer than READS for a store, and nothing of a store is imported before it is known that there is one.  What a person
should know beside the answer is given to the `say` of a Place.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stallguard.core.text import counted
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, StallguardError, nearest
from stallguard.storage import run_files
from stallguard.storage.paths import NEWEST, RunDir, list_runs

if TYPE_CHECKING:  # a machine in no fleet must not wait for these imports
    from stallguard.fleet.jobs.job_table import Fleet, JobRow
    from stallguard.fleet.store import Store
    from stallguard.fleet.store.membership import Membership
    from stallguard.fleet.store.signing import Signatures

READS, COPIES = 15.0, 60.0  # s for the table of all jobs, and for a copy of a run
COPIED = 50  # runs of other machines in one summary
FETCHED = 5.0  # s between two looks at the store while a log is followed
ASKS = 10.0  # s after which the run's machine is asked for what is new again
NO = 1  # exit code of a question whose answer is no
_NAMED = re.compile(r"\d{8}-\d{6}Z-(?P<name>.*)")  # a run's id
T = TypeVar("T")
Say = Callable[[str], None]


class Place(NamedTuple):
    """A store, and the fleet file of this machine, which can be that of another store.  `say`: takes a line."""

    url: str
    member: Membership | None
    say: Say


class Seen(NamedTuple):
    """What a store has."""

    place: Place
    store: Store
    fleet: Fleet
    signatures: Signatures | None  # of this member, None if this machine has no fleet file for it


class FleetRun(NamedTuple):
    """The run of a job.  `is_here`: a run of this machine, no copy."""

    seen: Seen
    job: JobRow
    run: RunDir | None
    is_here: bool


def place(store_url: str | None, say: Say) -> Place | None:
    """Return which store is meant, None if there is none.  Raises StallguardError for a bad fleet file."""
    from stallguard.fleet.store import membership

    fleet = membership.recall(os.environ)
    if store_url:
        return Place(store_url, fleet, say)
    return Place(fleet.store, fleet, say) if fleet else None


def look(where: Place, only: str = "", *, is_alive: bool = False) -> Seen:
    """Return what a store has.  `only`: of this job alone; `is_alive`: of jobs that run or wait.

    Raises StallguardError.
    """
    from stallguard.fleet.jobs import archive
    from stallguard.fleet.store import opening
    from stallguard.fleet.store.opening import open_store, split

    def read() -> Seen:
        store, signatures, member = open_store(where.url), None, where.member
        if member is not None:
            if split(where.url) == split(member.store):
                opening.check_owner(store, member)
            if opening.owner_of(store) in ("", member.fleet):
                signatures = fresh(store, member, where.say)
        return Seen(where, store, archive.fleet(store, signatures, only, is_alive=is_alive), signatures)

    return asked(where, READS, read)


def fresh(store: Store, member: Membership, say: Say) -> Signatures:
    """Return what verifies signatures by the store's list of revoked members; say if that cannot be used.

    Raises StoreError, StallguardError.
    """
    from stallguard.fleet.store.signing import Signatures

    found = Signatures(member)
    if trouble := found.refresh(store):
        say(trouble)
    return found


def asked(where: Place, seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns, which asks the store.  Raises StallguardError, also if it takes longer."""
    from stallguard.fleet.store import StoreError, unusable, within
    from stallguard.fleet.store.records import Damaged

    try:
        return within(seconds, work)
    except (StoreError, Damaged, OSError) as error:
        raise unusable(where.url, error) from error


def listed(store_url: str | None, say: Say, *, is_alive: bool = False) -> tuple[Seen | None, str]:
    """Return the fleet for a list, None if there is none; and why its jobs are missing, "" if they are not.

    `is_alive`: only jobs that run or wait are needed.
    """
    try:
        where = place(store_url, say)
        return (look(where, is_alive=is_alive), "") if where else (None, "")
    except StallguardError as error:
        missing = f"the jobs of the fleet are missing: {error.what}: {error.why}"
        say(missing)
        return None, missing


def meant(text: str | None, store_url: str | None, say: Say, *, copied: bool = True) -> FleetRun | None:
    """Return the run of the job that RUN means, None if it means a run of this machine; say which was chosen.

    `text`: the name of a job, or NAME/NUMBER for that of an earlier holder.  A run of this machine comes first if that
    is its id or its whole name.  `copied`: its files are needed.
    Raises StallguardError, with a store that was asked for also if it has no such job.
    """
    if text is None and not store_url:
        return None
    name, _, number = (text or "").partition("/")
    try:
        where = place(store_url, say)
    except StallguardError as error:
        _missing(error, text or "", store_url, say)
        return None
    if where is None:
        return None
    here = local(text, where) if text and not store_url else None
    if here is not None:
        if here.id != text and text not in NEWEST:
            say(f"run {here.id} of this machine; --store {where.url} means a job of the fleet")
        return None
    try:
        seen = look(where, name)
    except StallguardError as error:
        _missing(error, text or "", store_url, say)
        return None
    job = next((one for one in seen.fleet.jobs if one.job == name), None)
    if job is None:
        if store_url:
            near = nearest(name, seen.fleet.names)
            raise StallguardError(
                f"the store {seen.place.url} has no job {name!r}",
                cure=f"did you mean {near}?" if near else "stallguard ls --store URL lists them",
                code=NO_SUCH_RUN,
            )
        return None
    if number and not (number.isdecimal() and 1 <= int(number) <= job.number):
        raise StallguardError(f"job {name} has had {counted(job.number, 'holder')}, not {number}", code=NO_SUCH_RUN)
    return _of_job(seen, job, int(number) if number else job.number, copied=copied)


def _missing(error: StallguardError, text: str, store_url: str | None, say: Say) -> None:
    """Say why the jobs of the fleet are missing if a run of this machine can be meant (paths.find_run); else raise it.

    Raises StallguardError.
    """
    is_run = text in NEWEST or (Path(text) / "run.json").exists() or any(text in run.id for run in list_runs())
    if store_url or not is_run:
        raise error
    say(f"the jobs of the fleet are missing: {error.what}: {error.why}")


def local(text: str, where: Place) -> RunDir | None:
    """Return the newest run of this machine whose id or whole name is `text`.

    By its name alone a run of the job of that name does not count: the job can have gone on elsewhere since.
    """
    from stallguard.fleet.jobs import generations

    if text in NEWEST or (Path(text) / "run.json").exists():
        from stallguard.storage.paths import find_run

        return find_run(text)
    runs = list_runs()
    exact = [run for run in runs if run.id == text]
    named = [run for run in runs if (found := _NAMED.fullmatch(run.id)) and found["name"] == text]
    for run in reversed(exact or named):
        told = generations.recall(run)
        if run.id == text or told is None or (told.store, told.job) != (where.url, text):
            return run
    return None


def _of_job(seen: Seen, job: JobRow, number: int, *, copied: bool) -> FleetRun:
    """Return the run of a job's holder: that of this machine if it is alive here, else a copy."""
    from stallguard.fleet.jobs import generations, job_table, mirror

    is_running = job.state == job_table.RUNNING and number == job.number
    mine = [run for run, _ in generations.runs_of(seen.place.url, job.job)] if is_running else []
    for run in reversed(mine):
        if run_files.state(run) == "running":
            seen.place.say(f"job {job.job} is trained on this machine: run {run.id}")
            return FleetRun(seen, job, run, is_here=True)
    at, old = job.heard, ""
    if copied and is_running:
        old = asked(seen.place, COPIES, lambda: mirror.renew(seen.store, job.job, number))
    run_copy = asked(seen.place, COPIES, lambda: copy(seen, job, number)) if copied else None
    if run_copy is not None and (told_of := run_files.elsewhere(run_copy)):
        at = told_of.at
    on = f"job {job.job} on {job.machine}" if job.machine else f"job {job.job}"
    heard = f", as of {moment(at)}" if at else ""
    seen.place.say(
        "; ".join(filter(None, (f"{on}{heard}", old))) if number == job.number else f"job {job.job}, holder {number}"
    )
    return FleetRun(seen, job, run_copy, is_here=False)


def copy(seen: Seen, job: JobRow, number: int) -> RunDir | None:
    """Return the copy of a run, None if nothing of it is in the store.  Raises StoreError, OSError and Damaged."""
    from stallguard.fleet.jobs import job_table, mirror

    if not number:
        return None
    lives = job.state == job_table.RUNNING and number == job.number
    return mirror.bring(seen.store, job.job, number, lives=lives)


def keep_new(found: FleetRun) -> None:
    """Keep the copy of a job's run as new as the store, until the run is over."""
    from stallguard.fleet.jobs import job_table, mirror
    from stallguard.fleet.store import StoreError
    from stallguard.fleet.store.records import Damaged

    seen, number, is_away, asks_at = found.seen, found.job.number, False, 0.0
    while True:
        time.sleep(FETCHED)
        try:
            job = job_table.row(found.job.job, job_table.read_job(seen.store, found.job.job, seen.signatures), (), ())
            if time.monotonic() >= asks_at:
                asks_at = time.monotonic() + ASKS
                mirror.renew(seen.store, job.job, number, patience=0.0)
            copy(seen, job, number)
            is_away = False
        except (StoreError, Damaged, OSError) as error:
            if not is_away:
                seen.place.say(f"the log cannot be fetched ({error}); it is tried again")
            is_away = True
        else:
            if job.state != job_table.RUNNING or job.number != number:
                return


def copies_since(seen: Seen, began: dt.datetime) -> tuple[list[RunDir], str]:
    """Return copies of the newest runs of jobs that ran since `began`; and why some are missing, "" if none is."""
    from stallguard.fleet.jobs import job_table
    from stallguard.fleet.store.records import time_of

    def lately(job: JobRow) -> bool:
        since = time_of(job.since)
        return job.state == job_table.RUNNING or (since is not None and since >= began)

    wanted = [job for job in seen.fleet.jobs if job.number and lately(job)]
    newest = sorted(wanted, key=lambda job: job.since)[-COPIED:]
    try:
        found = [asked(seen.place, COPIES, partial(copy, seen, job, job.number)) for job in newest]
    except StallguardError as error:
        missing = f"the runs of the fleet are missing: {error.what}: {error.why}"
        seen.place.say(missing)
        return [], missing
    left_out = len(wanted) - len(newest)
    missing = f"only the newest {COPIED} of {counted(len(wanted), 'run')} of the fleet are shown" if left_out else ""
    if missing:
        seen.place.say(missing)
    return [run for run in found if run is not None], missing


def readable(found: FleetRun) -> RunDir:
    """Return the directory that verbs read.  Raises StallguardError if there is nothing yet."""
    if found.run is not None:
        return found.run
    raise StallguardError(
        f"there is nothing to read of job {found.job.job} yet",
        why=f"it is {found.job.state}" + (f": {found.job.why}" if found.job.why else ""),
        cure=f"stallguard status {found.job.job} shows how it stands",
        code=NO,
    )


def stop(found: FleetRun) -> str:
    """Write the order to end a job; return what follows.  Raises StallguardError."""
    import getpass

    from stallguard.fleet.jobs import job_table
    from stallguard.fleet.store import membership, orders

    job, where = found.job, found.seen.place
    if job.state in (job_table.FINISHED, job_table.STOPPED):
        raise StallguardError(f"job {job.job} is over: {job.state}", why=job.why, code=NO)
    if found.seen.signatures is None:
        raise StallguardError(
            f"job {job.job} cannot be stopped from here",
            why=f"this machine has no fleet file for the store {where.url}, and an order must be signed",
            cure=f"give the order on a machine of that fleet, or name its file: {membership.VARIABLE}=FILE",
            code=CANNOT_RUN,
        )
    by = f"{getpass.getuser()}@{os.uname().nodename}"
    order = orders.Stop(schema=orders.SCHEMA, job=job.job, by=by, at=run_files.utc())
    data = orders.encode(order, found.seen.signatures)
    store = found.seen.store
    asked(where, READS, lambda: store.replace(orders.Stop.place(job=job.job), data))
    asked(where, READS, lambda: store.replace(orders.news_key(job.job), b""))
    if job.state == job_table.RUNNING:
        return f"job {job.job} is stopped: {job.machine} ends its training, with a checkpoint, at the next renewal"
    return f"job {job.job} is stopped: no machine of the fleet takes it"


def moment(at: str) -> str:
    """Return a time of the store as local time of day, with the date if it is not of today; as it is if damaged."""
    from stallguard.fleet.store.records import time_of

    then = time_of(at)
    if then is None:
        return at
    here = then.astimezone()
    return f"{here:%H:%M}" if here.date() == dt.datetime.now().astimezone().date() else f"{here:%d %b %H:%M}"


def age(at: str) -> float | None:
    """Return how many seconds ago a time of the store was, by this machine's clock; None if it is damaged."""
    from stallguard.fleet.store.records import time_of

    then = time_of(at)
    return None if then is None else (dt.datetime.now(dt.UTC) - then).total_seconds()


def snapshot(job: JobRow) -> dict[str, Any]:
    """Return how a job's run stands in the form of a live run's answer, under the job's name."""
    return {"state": job.state} | job.status | {"run": job.job}
