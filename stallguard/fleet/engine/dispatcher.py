"""Reads the jobs of a store, and gives the engine those that may start.

It holds nothing that matters: after a restart it reads the same from the store, so a scheduler can be ended and started
at any time.  What it reads, and when, is in job_reader.py.  Its watch of a lease is its own (fleet.machines.lease):
clocks of machines are never compared.  Jobs that are over it adds to the archive, and keeps a table of the others for
those who read (fleet.jobs.archive).

`match` pairs waiting jobs with free machines.  Dask binds a task to a machine when it gets it, so a task of low
priority that is bound to a free machine runs before one of high priority that is bound to a busy one.  Therefore the
order is decided here, and Dask gets a task only for room that is free now.

The jobs are taken in their order: the highest priority first; of these what had begun before; then the first that was
submitted.  Each gets the machine that it fills best.  For a job that has room nowhere, the machine that lacks least is
kept: no later job gets room there, else small jobs would hold up a large one for ever.  Of several jobs that need the
same on the same machines only the first has a machine kept.

So at each start it holds that no job before it in the order could have had the room that it takes.

Must not decide which jobs can start: dispatch.decide does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from stallguard.core.messages import duration
from stallguard.fleet.engine.job_reader import READERS, RESTS, Followed, JobReader
from stallguard.fleet.jobs import archive, job_table
from stallguard.fleet.jobs.archive import Tables
from stallguard.fleet.jobs.dispatch import (
    OVER,
    START,
    ConnectedMachine,
    Engine,
    Fitting,
    JobView,
    Start,
    decide,
    needs_of,
)
from stallguard.fleet.jobs.job_table import JobRow
from stallguard.fleet.machines import lease
from stallguard.fleet.machines.lease import Watch
from stallguard.fleet.machines.machine_list import cordons_of
from stallguard.fleet.store import Store, StoreError, each, entry, orders, records
from stallguard.fleet.store.orders import Cordon, Submission
from stallguard.fleet.store.records import Claim, Damaged
from stallguard.fleet.store.signing import Signatures

CORDONS = 3.0  # s between two listings of the cordons
NO_ROOM = "no machine that can take it has room"

LEAST = 1e-6  # of a resource: amounts are GB with one decimal, or counts


class Deps(NamedTuple):
    """Edges.  `now`: seconds that also pass while the machine sleeps; `at`: the time for people; `say`: a line."""

    now: Callable[[], float]
    at: Callable[[], str]
    say: Callable[[str], None]


class Dispatcher:
    """Of one store and one engine; `turn` is called about once a second."""

    def __init__(self, store: Store, signatures: Signatures, engine: Engine, deps: Deps) -> None:
        """`signatures`: a job that no member of the fleet signed is never started."""
        self._store, self._signatures, self._engine, self._deps = store, signatures, engine, deps
        self._reader = JobReader(store, signatures, deps.now, self.say_once)
        self._followed: dict[str, Followed] = {}
        self._over: set[str] | None = None  # None: the archive is not read yet
        self._ending: dict[str, Followed] = {}  # stopped, and the holder has not ended its training yet
        self._tables = Tables()
        self._left: list[str] = []  # keys of renewals whose holders are over
        self._refused: set[str] = set()  # jobs that this fleet did not sign, which was said
        self._cordons: dict[str, Cordon] = {}  # by host, also those that are lifted
        self._cordon_versions: dict[str, str] = {}
        self._cordons_at = 0.0
        self._found = 0  # jobs so far
        self._said: set[str] = set()
        self._addresses: dict[str, str] = {}  # of the machines that are connected, by host
        self._is_writable, self._writes_at = True, 0.0

    def turn(self) -> None:
        """Look at each job whose time has come, and do what is due.  Raises StoreError; nothing is lost then."""
        self._find_jobs()
        self._read_cordons()
        machines = self._engine.machines()
        self._addresses = {one.host: one.address for one in machines}
        refused = [one for one in machines if one.host in self._kept_out()]
        self._read_cordons_of([one.host for one in refused])  # a worker can have lifted its own just now
        for machine in refused:
            if machine.host in self._kept_out():
                self._engine.retire(machine.address)
        jobs = dict(self._followed)
        for name, job in jobs.items():
            job.can_start_at = ()
            self._ask_engine(name, job)
        before = {name: job.watch for name, job in jobs.items()}
        self._reader.listen(jobs.items())
        errors = self._read({name: job for name, job in jobs.items() if self._deps.now() >= job.looks_at})
        for name, job in jobs.items():
            self._doubt_silence(job, before[name])
        fitting = Fitting(machines, self._kept_out())
        for name, job in jobs.items():
            if name not in errors and not job.is_damaged:
                self._judge(name, job, fitting)
        self._match(machines)
        self._notify_noted()
        self._publish()
        if errors and len(errors) == len(jobs):
            raise next(iter(errors.values()))

    def _read(self, jobs: dict[str, Followed]) -> dict[str, StoreError]:
        """Read jobs; return which cannot be read: one that is damaged must not hold up the others."""
        failed = self._reader.read(list(jobs.items()), len(self._followed))
        errors: dict[str, StoreError] = {}
        for name, error in failed.items():
            if isinstance(error, Damaged):  # its log
                self.say_once(f"job {name} waits: {error}; put it back from a backup")
                jobs[name].is_damaged = True
                continue
            if jobs[name].waits != str(error):
                self._deps.say(f"job {name}: its keys cannot be read ({error})")
            jobs[name].waits = str(error)
            errors[name] = error
        return errors

    def _find_jobs(self) -> None:
        if self._over is None:
            self._over = archive.names(self._store)
        over, found = self._over, list[Submission]()
        for name, data in self._reader.found(
            lambda name: name in over or name in self._refused or name in self._followed
        ):
            try:
                submission = orders.decode_submission(data, self._signatures, name)
            except Damaged as error:
                self._refused.add(name)
                self._deps.say(f"job {name} is refused: {error}")
                continue
            if submission.engine == orders.DASK:
                found.append(submission)
            else:
                over.add(name)  # another engine starts it
        for submission in sorted(found, key=lambda one: (one.at, one.job)):
            self._found += 1
            self._followed[submission.job] = Followed(submission, self._found, self._deps.now())
        for name in self._reader.noted & self._followed.keys():
            self._followed[name].looks_at = self._deps.now()

    def _read_cordons(self) -> None:
        if self._deps.now() < self._cordons_at:
            return
        versions = dict(self._store.versions("cordons"))
        changed = [host for host, version in versions.items() if self._cordon_versions.get(host) != version]
        self._read_cordons_of(changed)
        self._cordons = {host: cordon for host, cordon in self._cordons.items() if host in versions}
        self._cordon_versions, self._cordons_at = versions, self._deps.now() + CORDONS

    def _read_cordons_of(self, hosts: Sequence[str]) -> None:
        found = {one.host: one for one in cordons_of(self._store, hosts, self._signatures)}
        self._cordons = {host: one for host, one in self._cordons.items() if host not in hosts} | found

    def _kept_out(self) -> frozenset[str]:
        return frozenset(host for host, cordon in self._cordons.items() if not cordon.is_lifted)

    def _judge(self, name: str, job: Followed, fitting: Fitting) -> None:
        """Do what is known of a job asks for; a start follows in `_match`."""
        outcome, claim = job.tail.outcome, job.tail.claim
        if job.has_ended:
            job.has_ended = False
            job.idle = 0 if job.tail.newest > job.newest else job.idle + 1
        if outcome is not None and claim is not None and outcome.fault:
            self._cordon(name, job, claim, outcome.fault)
        decision = decide(self._view(job, fitting.machines), fitting)
        if decision.vanished and claim is not None:
            self._cordon(name, job, claim, f"silent for {duration(claim.holder.lasts)}", lifts_itself=True)
        if decision.do == OVER:
            self._deps.say(f"job {name}: {decision.why}")
            if job.address:
                self._engine.forget(name)
            del self._followed[name]
            self._end(name, job)
        elif decision.do == START:
            last = job.address
            if last:
                self._engine.forget(name)
                job.address, job.is_begun = "", False
            # A machine that did not begin it comes last.
            is_last = last in decision.addresses
            job.can_start_at = (
                tuple(sorted(decision.addresses, key=lambda address: address == last))
                if is_last
                else decision.addresses
            )
            return
        elif decision.why != job.waits:
            self._deps.say(f"job {name} waits: {decision.why}")
        job.waits = decision.why

    def _match(self, machines: Sequence[ConnectedMachine]) -> None:
        """Start the jobs for which there is room now."""
        waiting = [
            Waiting(
                name, job.submission.priority, job.tail.claim is not None, job.place, needs_of(job.submission),
                job.can_start_at,
            )
            for name, job in self._followed.items() if job.can_start_at
        ]  # fmt: skip
        rooms = {one.address: dict(one.resources) for one in machines}
        for job in self._followed.values():
            room = rooms.get(job.address, {})
            for resource, amount in needs_of(job.submission).items() if room else ():
                room[resource] = room.get(resource, 0.0) - amount
        pairs = match(waiting, rooms)
        # What was read some time ago: a person can have stopped it, or begun it by hand.
        old = {
            name: job for name, _ in pairs
            if (job := self._followed[name]).read_at is None or job.read_at < self._deps.now() - RESTS
        }  # fmt: skip
        errors, fitting = self._read(old), Fitting(machines, self._kept_out())
        for name, job in old.items():
            job.can_start_at = ()
            if name not in errors and not job.is_damaged:
                self._judge(name, job, fitting)
        for name, address in pairs:
            if name in self._followed and address in self._followed[name].can_start_at:
                self._start(name, self._followed[name], address)
        for one in waiting:
            if (kept := self._followed.get(one.job)) is None or not kept.can_start_at:
                continue
            if not kept.address and kept.waits != NO_ROOM:
                self._deps.say(f"job {one.job} waits: {NO_ROOM}")
            kept.waits = "" if kept.address else NO_ROOM

    def _ask_engine(self, name: str, job: Followed) -> None:
        placed = self._engine.placed(name) if job.address else None
        if placed is None or not placed.is_over:
            if placed is not None and placed.is_begun and not job.is_begun:  # soon it has a holder
                job.looks_at = min(job.looks_at, self._deps.now() + RESTS)
            job.is_begun = placed is not None and placed.is_begun
            return
        job.address, job.is_begun, job.has_ended = "", False, True
        job.since = job.looks_at = self._deps.now()
        if placed.failure:
            self._deps.say(f"job {name}: {placed.failure}")

    def _doubt_silence(self, job: Followed, before: Watch | None) -> None:
        """Take back a silence that grew in this turn, if no holder can write to the store."""
        claim, watch = job.holder, job.watch
        if claim is None or before is None or watch is None or watch.quiet <= before.quiet:
            return
        if lease.is_suspect(watch, claim.holder.lasts) and not self._can_write():
            job.watch = watch._replace(quiet=before.quiet)

    def _end(self, name: str, job: Followed) -> None:
        """Follow a job no more; it comes into the archive as soon as its holder has ended."""
        assert self._over is not None  # noqa: S101 - read before the first job was found
        self._over.add(name)
        if not job.tail.is_free:
            self._ending[name], job.looks_at = job, self._deps.now() + RESTS
            self._notify(name, job)
            return
        self._tables.add(self._row(name, job))
        claim = job.tail.claim
        # A holder that has ended, and its machine, have done it themselves; one that was killed has not.
        if claim is not None:
            mark = records.mark_key(records.beat_name(name, claim.number), claim.holder.host)
            self._left += [records.beat_key(name, claim), mark]

    def _notify(self, name: str, job: Followed) -> None:
        """Have the machine of a holder look whether its job was stopped, and publish what people read of its run."""
        if job.holder is not None and (address := self._addresses.get(job.holder.holder.host)):
            self._engine.notify(address, name)

    def _notify_noted(self) -> None:
        """Have the machines look at the jobs for which a member left a note; `_end` has done so for what is stopped."""
        noted = self._reader.noted
        for name in noted & self._followed.keys():
            self._notify(name, self._followed[name])
        # Those that a person began on a machine with a worker.
        for name, host in self._reader.hosts_of(noted - self._followed.keys() - self._ending.keys()).items():
            if host in self._addresses:
                self._engine.notify(self._addresses[host], name)
        noted.clear()

    def _row(self, name: str, job: Followed) -> JobRow:
        found = job_table.Read(job.tail, job.submission, job.stop)
        made = job_table.row(name, found, (), ())
        return replace(made, why=job.waits) if made.state == job_table.WAITING else made

    def _publish(self) -> None:
        """Write for those who read what has changed."""
        now = self._deps.now()
        due = [(name, job) for name, job in self._ending.items() if now >= job.looks_at]
        self._reader.read(due, len(self._followed))  # what cannot be read is read again
        for name, job in due:
            if job.tail.is_free:
                del self._ending[name]
                self._end(name, job)
            else:
                self._notify(name, job)  # again: a message can be lost
        try:
            if self._tables.archive(self._store, now, self._deps.at()):
                return  # the rest follows with the next turn, which must not take long
            if self._left:
                left, self._left = self._left, []
                each(self._reader.remove, left, READERS)
            if self._tables.keep(self._store, now, self._deps.at(), self._followed, self._mark, self._shown):
                self._reader.forget_notes()  # who reads knows of what they say
        except StoreError as error:
            self.say_once(f"the table of jobs cannot be written ({error}); it is tried again")

    def _mark(self, name: str) -> tuple[str, ...]:
        """Return what the row of a job that is not over follows from."""
        job = self._followed[name]
        return name, str(job.tail.slot), job.waits, str(job.stop)

    def _shown(self, name: str) -> JobRow:
        return self._row(name, self._followed[name])

    def _can_write(self) -> bool:
        """Return whether the store takes what is written; else no holder can renew, and its silence says nothing."""
        now = self._deps.now()
        if now >= self._writes_at:
            self._writes_at = now + RESTS
            try:
                self._store.replace(orders.SCHEDULER_WRITES, self._deps.at().encode())
            except StoreError as error:
                if self._is_writable:
                    self._deps.say(f"the store can be read and not written to ({error}): no holder counts as silent")
                self._is_writable = False
            else:
                if not self._is_writable:
                    self._deps.say("the store can be written to again")
                self._is_writable = True
        return self._is_writable

    def say_once(self, line: str) -> None:
        """Say what is not to be repeated with each turn."""
        if line not in self._said:
            self._said.add(line)
            self._deps.say(line)

    def _view(self, job: Followed, machines: Sequence[ConnectedMachine]) -> JobView:
        workers = {one.host: one.worker for one in machines} if job.refusals else {}
        return JobView(
            submission=job.submission, tail=job.tail, is_stopped=job.stop is not None,
            refusals={one.host: one.why for one in job.refusals if workers.get(one.host) == one.worker},
            has_run_out=job.has_run_out, is_judged=job.judged == job.tail.number, since=self._deps.now() - job.since,
            idle=job.idle, address=job.address, given=self._deps.now() - job.given, is_begun=job.is_begun,
        )  # fmt: skip

    def _cordon(self, name: str, job: Followed, claim: Claim, why: str, *, lifts_itself: bool = False) -> None:
        """Cordon the machine of a holder, once for each holder."""
        host, before = claim.holder.host, self._cordons.get(claim.holder.host)
        if job.judged == claim.number:
            return
        is_judged = before is not None and (before.job, before.number) == (name, claim.number)
        if is_judged or (before is not None and not before.is_lifted):
            job.judged = claim.number
            return
        cordon = Cordon(
            schema=orders.SCHEMA, host=host, at=self._deps.at(), why=f"{why}, in job {name}", job=name,
            number=claim.number, lifts_itself=lifts_itself,
        )  # fmt: skip
        self._store.replace(orders.Cordon.place(host=host), orders.encode(cordon, self._signatures))
        self._cordons[host], job.judged = cordon, claim.number
        self._deps.say(f"machine {host} takes no more jobs: {cordon.why}")

    def _start(self, name: str, job: Followed, address: str) -> None:
        data = entry(self._store, orders.Submission.place(job=name))
        try:  # again: since it was found, its member can have been revoked
            orders.decode_submission(data or b"", self._signatures, name)
        except Damaged as error:
            self._deps.say(f"job {name} is refused: {error}")
            self._refused.add(name)
            del self._followed[name]
            return
        job.attempts += 1
        job.address, job.is_begun, job.given = address, False, self._deps.now()
        job.newest = job.tail.newest
        quiet = job.watch.mark if job.watch is not None and job.has_run_out else ""
        self._engine.start(Start(name, job.attempts, needs_of(job.submission), address, quiet))
        since = job.tail.generation.at if job.tail.generation else ""
        goes_on = f"it goes on from the checkpoint that was published at {since}" if since else "nothing was published"
        self._deps.say(f"job {name} starts; {goes_on}" if quiet else f"job {name} starts")


class Waiting(NamedTuple):
    """A job that can start now.  `place`: in the order of submission; `addresses`: of machines that can take it."""

    job: str
    priority: int
    has_begun: bool
    place: int
    needs: Mapping[str, float]
    addresses: tuple[str, ...]


def match(waiting: Iterable[Waiting], rooms: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str]]:
    """Return pairs of a job and the address of the machine that is to start it, in the order of the jobs.

    `rooms`: what each machine has left of each resource.
    """
    left = {address: dict(room) for address, room in rooms.items()}
    kept: set[str] = set()  # machines for a job that waits for more room there
    without: set[tuple[tuple[tuple[str, float], ...], tuple[str, ...]]] = set()  # what has no room now
    pairs = []

    def rest(address: str, needs: Mapping[str, float]) -> tuple[int, float]:
        """Kinds of resources that a job does not need, then what it leaves: one with a GPU is left to who needs it."""
        room = left[address]
        others = sum(amount > LEAST for name, amount in room.items() if needs.get(name, 0.0) <= 0)
        return others, sum(room.values()) - sum(needs.values())

    def lack(address: str, needs: Mapping[str, float]) -> float:
        """The share of its needs that a machine lacks, summed over the resources."""
        room = left[address]
        return sum(max(0.0, amount - room.get(name, 0.0)) / amount for name, amount in needs.items() if amount)

    for one in sorted(waiting, key=order):
        kind = (tuple(sorted(one.needs.items())), one.addresses)
        if kind in without:
            continue
        able = [address for address in one.addresses if address in left and address not in kept]
        free = [address for address in able if has_room(left[address], one.needs)]
        if free:
            address = min(free, key=partial(rest, needs=one.needs))
            for name, amount in one.needs.items():
                left[address][name] = left[address].get(name, 0.0) - amount
            pairs.append((one.job, address))
        else:
            without.add(kind)
            if able:
                kept.add(min(able, key=partial(lack, needs=one.needs)))
    return pairs


def order(one: Waiting) -> tuple[int, bool, int]:
    """Return the key by which jobs are sorted."""
    return (-one.priority, not one.has_begun, one.place)


def has_room(room: Mapping[str, float], needs: Mapping[str, float]) -> bool:
    """Return whether a machine has enough left of each resource."""
    return all(room.get(name, 0.0) >= amount - LEAST for name, amount in needs.items())
