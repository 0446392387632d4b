"""Reads the jobs of a store, and gives the engine those that may start.

It holds nothing that matters: after a restart it reads the same from the store, so a scheduler can be ended and started
at any time.  A job that is over is not read again; one that waits is read every few seconds; the lease of one that has
a holder is read several times for each renewal.  That watch is its own (fleet.lease): clocks of machines are never
compared.

Must not decide: dispatch.decide does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stallguard.core.messages import duration
from stallguard.fleet import joblog, lease, orders
from stallguard.fleet.joblog import Tail, perform
from stallguard.fleet.lease import Watch
from stallguard.fleet.orders import Cordon, Refusal, Submission
from stallguard.fleet.records import Claim, Damaged
from stallguard.fleet.signing import Signatures
from stallguard.fleet.store import Store, StoreError
from stallguard.pool.dispatch import OVER, START, JobView, Machine, decide, needs_of
from stallguard.pool.engine import Engine, Start
from stallguard.pool.matcher import Waiting, match

LOOKS = 4  # at a lease, for each renewal that a live holder makes
RESTS = 5.0  # s between two looks at a job without a holder
# The same for each job that is not over, if these are more: six requests to a bucket take 0.2 s, and a turn that takes
# longer than a look at a lease makes its watch late.  From half of it to one and a half, by the job's place: else all
# that were found at once would be due at once each time.
EACH, GOLDEN = 0.5, 0.618
NO_ROOM = "no machine that can take it has room"


class Deps(NamedTuple):
    """Edges.  `now`: seconds that also pass while the machine sleeps; `at`: the time for people; `say`: a line."""

    now: Callable[[], float]
    at: Callable[[], str]
    say: Callable[[str], None]


class _Followed:
    """A job that is not over."""

    def __init__(self, submission: Submission, place: int, now: float) -> None:
        self.submission, self.place = submission, place  # in the order of submission
        self.tail = Tail()
        self.watch: Watch | None = None
        self.is_stopped = False
        self.refusals: list[Refusal] = []
        self.looks_at = now  # when the store is read next
        self.address = ""  # of the machine for which the engine has it
        self.given = now  # when the engine got it
        self.is_begun = False
        self.can_start_at: tuple[str, ...] = ()  # addresses of machines that can have it
        self.since = now  # when its last start ended
        self.attempts = self.idle = 0
        self.newest = 0  # the newest generation when it was last started
        self.judged = 0  # the number of the holder whose machine was cordoned
        self.waits = ""

    @property
    def holder(self) -> Claim | None:
        """Who has it, also if it is silent."""
        return None if self.tail.is_free else self.tail.claim

    @property
    def has_run_out(self) -> bool:
        """Whether the holder was silent for its whole lease."""
        claim, watch = self.holder, self.watch
        return claim is not None and watch is not None and lease.has_run_out(watch, claim.holder.lasts)


class Dispatcher:
    """Of one store and one engine; `turn` is called about once a second."""

    def __init__(self, store: Store, signatures: Signatures, engine: Engine, deps: Deps) -> None:
        """`signatures`: a job that no member of the fleet signed is never started."""
        self._store, self._signatures, self._engine, self._deps = store, signatures, engine, deps
        self._followed: dict[str, _Followed] = {}
        self._over: set[str] = set()
        self._refused: set[str] = set()  # jobs that this fleet did not sign, which was said
        self._cordons: dict[str, Cordon] = {}  # by host, also those that are lifted
        self._found = 0  # jobs so far
        self._said: set[str] = set()
        self._is_writable, self._writes_at = True, 0.0

    def turn(self) -> None:
        """Look at each job whose time has come, and do what is due.  Raises StoreError; nothing is lost then."""
        self._find_jobs()
        read = {host: self._store.read(orders.cordon_key(host)) for host in self._store.names("cordons")}
        self._cordons = {
            host: orders.decode_cordon(data, host, self._signatures)
            for host, data in read.items()
            if data is not None
        }
        machines = self._engine.machines()
        for machine in machines:
            if machine.host in self._kept_out():
                self._engine.retire(machine.address)
        jobs = list(self._followed.items())
        errors = [error for name, job in jobs if (error := self._try(name, job, machines)) is not None]
        self._match(machines)
        if errors and len(errors) == len(jobs):
            raise errors[0]

    def _try(self, name: str, job: _Followed, machines: Sequence[Machine]) -> StoreError | None:
        """Look at a job; return why its keys cannot be read: one that is damaged must not hold up the others."""
        try:
            self._look(name, job, machines)
        except StoreError as error:
            if job.waits != str(error):
                self._deps.say(f"job {name}: its keys cannot be read ({error})")
            job.waits = str(error)
            return error
        except Damaged as error:  # of its log
            self.say_once(f"job {name} waits: {error}; put it back from a backup")
        return None

    def _find_jobs(self) -> None:
        found: list[Submission] = []
        known = self._over | self._refused | self._followed.keys()
        for name in self._store.names("jobs"):
            if name in known or not orders.JOB_NAME.fullmatch(name):
                continue
            try:
                data = self._store.read(orders.submission_key(name))
            except (
                StoreError
            ) as error:  # a link in place of its folder, for instance, must not hold up the others
                self.say_once(f"job {name}: its submission cannot be read ({error})")
                continue
            if data is None:
                continue  # started by hand, or its submission is being written
            try:
                submission = orders.decode_submission(data, self._signatures, name)
            except Damaged as error:
                self._refused.add(name)
                self._deps.say(f"job {name} is refused: {error}")
                continue
            if submission.engine == orders.DASK:
                found.append(submission)
            else:
                self._over.add(name)  # another engine starts it
        for submission in sorted(found, key=lambda one: (one.at, one.job)):
            self._found += 1
            self._followed[submission.job] = _Followed(submission, self._found, self._deps.now())

    def _kept_out(self) -> frozenset[str]:
        return frozenset(host for host, cordon in self._cordons.items() if not cordon.is_lifted)

    def _look(self, name: str, job: _Followed, machines: Sequence[Machine]) -> None:
        job.can_start_at = ()
        self._ask_engine(name, job)
        if self._deps.now() >= job.looks_at:
            self._read(name, job)
        outcome, claim = job.tail.outcome, job.tail.claim
        if outcome is not None and claim is not None and outcome.fault:
            self._cordon(name, job, claim, outcome.fault)
        decision = decide(self._view(job, machines), machines, self._kept_out())
        if decision.vanished and claim is not None:
            self._cordon(name, job, claim, f"silent for {duration(claim.holder.lasts)}", lifts_itself=True)
        if decision.do == OVER:
            self._deps.say(f"job {name}: {decision.why}")
            if job.address:
                self._engine.forget(name)
            del self._followed[name]
            self._over.add(name)
        elif decision.do == START:
            last = job.address
            if last:
                self._engine.forget(name)
                job.address, job.is_begun = "", False
            # A machine that did not begin it comes last.
            job.can_start_at = tuple(sorted(decision.addresses, key=lambda address: address == last))
            return
        elif decision.why != job.waits:
            self._deps.say(f"job {name} waits: {decision.why}")
        job.waits = decision.why

    def _match(self, machines: Sequence[Machine]) -> None:
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
        for name, address in match(waiting, rooms):
            self._start(name, self._followed[name], address)
        for one in waiting:
            if one.job not in self._followed:  # refused
                continue
            job = self._followed[one.job]
            if not job.address and job.waits != NO_ROOM:
                self._deps.say(f"job {one.job} waits: {NO_ROOM}")
            job.waits = "" if job.address else NO_ROOM

    def _ask_engine(self, name: str, job: _Followed) -> None:
        placed = self._engine.placed(name) if job.address else None
        if placed is None or not placed.is_over:
            if placed is not None and placed.is_begun and not job.is_begun:  # soon it has a holder
                job.looks_at = min(job.looks_at, self._deps.now() + RESTS)
            job.is_begun = placed is not None and placed.is_begun
            return
        job.address, job.is_begun = "", False
        job.since = job.looks_at = self._deps.now()
        self._read(name, job)
        job.idle = 0 if job.tail.newest > job.newest else job.idle + 1
        if placed.failure:
            self._deps.say(f"job {name}: {placed.failure}")

    def _read(self, name: str, job: _Followed) -> None:
        """Read the end of the log, the lease, and what is ordered and refused."""
        if not job.tail.slot:
            job.tail = perform(joblog.read_end(name), self._store)
        job.tail, mark = perform(joblog.look(name, job.tail), self._store)
        many = EACH * len(self._followed) * (0.5 + job.place * GOLDEN % 1)
        rests, holder = RESTS if job.is_begun else max(RESTS, many), job.holder
        if holder is not None:
            lasts = holder.holder.lasts
            rests = min(RESTS, lasts / lease.PER_LEASE / LOOKS)
            before, job.watch = job.watch, lease.watched(job.watch, mark, self._deps.now(), lasts)
            if before is not None and lease.is_suspect(job.watch, lasts) and not self._can_write():
                job.watch = job.watch._replace(quiet=min(job.watch.quiet, before.quiet))
        job.is_stopped = self._is_stopped(name)
        job.refusals = [] if holder else self._read_refusals(name)
        job.looks_at = self._deps.now() + rests

    def _can_write(self) -> bool:
        """Return whether the store takes what is written; else no holder can renew, and its silence says nothing."""
        now = self._deps.now()
        if now >= self._writes_at:
            self._writes_at = now + RESTS
            try:
                self._store.replace(orders.SCHEDULER_WRITES, self._deps.at().encode())
            except StoreError as error:
                if self._is_writable:
                    self._deps.say(
                        f"the store can be read and not written to ({error}): no holder counts as silent"
                    )
                self._is_writable = False
            else:
                if not self._is_writable:
                    self._deps.say("the store can be written to again")
                self._is_writable = True
        return self._is_writable

    def _is_stopped(self, name: str) -> bool:
        data = self._store.read(orders.stop_key(name))
        if data is None:
            return False
        try:
            orders.decode_stop(data, self._signatures, name)
        except Damaged as error:  # each program that can write to the store could have put it there
            self.say_once(f"job {name}: an order to stop it is refused: {error}")
            return False
        return True

    def say_once(self, line: str) -> None:
        """Say what is not to be repeated with each turn."""
        if line not in self._said:
            self._said.add(line)
            self._deps.say(line)

    def _read_refusals(self, name: str) -> list[Refusal]:
        found: list[Refusal] = []
        for host in self._store.names(orders.refusals_folder(name)):
            data = self._store.read(orders.refusal_key(name, host))
            try:
                found.append(orders.decode_refusal(data or b"", name, host, self._signatures))
            except Damaged:
                continue  # the machine is asked again
        return found

    def _view(self, job: _Followed, machines: Sequence[Machine]) -> JobView:
        workers = {one.host: one.worker for one in machines}
        return JobView(
            submission=job.submission,
            tail=job.tail,
            is_stopped=job.is_stopped,
            refusals={one.host: one.why for one in job.refusals if workers.get(one.host) == one.worker},
            has_run_out=job.has_run_out,
            is_judged=job.judged == job.tail.number,
            since=self._deps.now() - job.since,
            idle=job.idle,
            address=job.address,
            given=self._deps.now() - job.given,
            is_begun=job.is_begun,
        )

    def _cordon(
        self, name: str, job: _Followed, claim: Claim, why: str, *, lifts_itself: bool = False
    ) -> None:
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
        self._store.replace(orders.cordon_key(host), orders.encode_cordon(cordon, self._signatures))
        self._cordons[host], job.judged = cordon, claim.number
        self._deps.say(f"machine {host} takes no more jobs: {cordon.why}")

    def _start(self, name: str, job: _Followed, address: str) -> None:
        data = self._store.read(orders.submission_key(name))
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
        goes_on = (
            f"it goes on from the checkpoint that was published at {since}"
            if since
            else "nothing was published"
        )
        self._deps.say(f"job {name} starts; {goes_on}" if quiet else f"job {name} starts")
