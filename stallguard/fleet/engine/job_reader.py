"""How the dispatcher reads the jobs of a store: what can have changed, several at a time, and nothing of what is over.

A store with a thousand machines has 100,000 jobs that are over and 10,000 that wait, and each request takes 20 ms.  So:

- a job that is over is in the archive (fleet.jobs.archive), and is read no more;
- all names of jobs are listed seldom, if they are many: a member that orders or reads something leaves a note in
  `news`;
- of a job without a holder one listing shows whether there is a log, an order to stop it, a refusal; it is read before
  it is started, and else by turns;
- whether holders live is one listing of all their renewals, and one of the cards of their machines, which stand for
  them.  They can say only that one has renewed: a holder that seems silent is read as any other reader reads it
  (joblog.look), and only that counts as its end.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from stallguard.fleet.machines import lease
from stallguard.fleet.machines.lease import Watch
from stallguard.fleet.machines.machine_list import records_of
from stallguard.fleet.store import Store, StoreError, each, joblog, orders, records
from stallguard.fleet.store.joblog import Tail, perform
from stallguard.fleet.store.orders import JOB_NAME, Refusal, Stop, Submission
from stallguard.fleet.store.records import Claim, Damaged
from stallguard.fleet.store.signing import Signatures
from stallguard.worker import Worker

READERS = 32  # requests at once: 10,000 jobs are read within 15 s when a scheduler starts
RESTS = 5.0  # s between two looks at a job without a holder
# The same for each job that is not over, if these are more.  From half of it to one and a half, by the job's place
# times the golden ratio, whose multiples are spread evenly: else all that were found at once would be due at once.
RESTS_EACH, GOLDEN_RATIO = 4.0, 0.618
NEWS, LISTS = 3.0, 3.0  # s between two listings of the news, and of all jobs
PAGE, PAGES = (1000, 6.0)  # names in an answer of a bucket; s between two listings of jobs for each page of them
PAGES_IN_TURN = 5  # more are listed beside the turns
BEATS = 5.0  # s between two listings of all renewals
BY_HAND = 60.0  # s until it is looked again whether a job that was started by hand was submitted since


class Followed:
    """A job that is not over."""

    def __init__(self, submission: Submission, place: int, now: float) -> None:
        self.submission, self.place = submission, place  # in the order of submission
        self.tail = Tail()
        self.watch: Watch | None = None
        self.beat = ""  # how the last listing had the renewals of its holder
        self.stop: Stop | None = None
        self.refusals: list[Refusal] = []
        self.looks_at = now  # when the store is read next
        self.read_at: float | None = None
        self.address = ""  # of the machine for which the engine has it
        self.given = now  # when the engine got it
        self.is_begun = False
        self.has_ended = False  # what the engine had; its log is to be read
        self.is_damaged = False
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
        if claim is None or watch is None or not watch.mark:  # without a mark it is known from listings alone
            return False
        return lease.has_run_out(watch, claim.holder.lasts)


class _Seen(NamedTuple):
    """What a look at a job found.  `mark`: of its lease, "" without a holder; `at`: when that was answered."""

    tail: Tail
    mark: str
    at: float
    stop: Stop | None
    refusals: list[Refusal]


class JobReader:
    """Of one store.  `say_once`: says a line unless it was said."""

    def __init__(
        self, store: Store, signatures: Signatures, now: Callable[[], float], say_once: Callable[[str], None]
    ) -> None:
        """`signatures`: an order that no member signed does not count."""
        self._store, self._signatures, self._now, self._say_once = store, signatures, now, say_once
        self._news_at = self._lists_at = self._beats_at = 0.0
        # Jobs without a submission that can be read, and when it is read again.
        self._by_hand: dict[str, float] = {}
        self._listed: queue.SimpleQueue[Sequence[str] | StoreError] = queue.SimpleQueue()
        self._is_listing, self._pages = False, 0
        self._notes: set[str] = set()  # names in `news` that were read
        self.noted: set[str] = set()  # the jobs of new ones

    def found(self, is_known: Callable[[str], bool]) -> list[tuple[str, bytes]]:
        """Return the submissions of new jobs, as they are in the store.  Raises StoreError."""
        now, names = self._now(), set[str]()
        if now >= self._news_at:
            self._news_at = now + NEWS
            names.update(job for job, again in self._by_hand.items() if again <= now)
            for note in self._store.names(orders.NEWS):
                job, sign, _ = note.partition(records.OF)
                if sign and note not in self._notes and JOB_NAME.fullmatch(job):
                    self._notes.add(note)
                    self.noted.add(job)
        if now >= self._lists_at:
            self._lists_at = now + LISTS
            if self._pages <= PAGES_IN_TURN:
                self._listed.put(self._store.names("jobs"))
            elif not self._is_listing:
                self._is_listing = True
                Worker(self._list, "jobs").start()
        with contextlib.suppress(queue.Empty):
            listed = self._listed.get_nowait()
            self._is_listing = False
            if not isinstance(listed, StoreError):
                self._pages = -(-len(listed) // PAGE)
                self._lists_at = now + (LISTS if self._pages <= 1 else self._pages * PAGES)
                names.update(one for one in listed if self._by_hand.get(one, 0.0) <= now)
        wanted = [one for one in sorted(names | self.noted) if JOB_NAME.fullmatch(one) and not is_known(one)]
        answers = each(self._submission, wanted, READERS)
        for name, data in zip(wanted, answers, strict=True):
            if data is None:
                self._by_hand[name] = now + max(BY_HAND, RESTS_EACH * len(self._by_hand))
            elif isinstance(data, StoreError):
                self._by_hand[name] = now + RESTS
            else:
                self._by_hand.pop(name, None)
        return [(name, data) for name, data in zip(wanted, answers, strict=True) if isinstance(data, bytes)]

    def _list(self) -> None:
        try:
            self._listed.put(self._store.names("jobs"))
        except StoreError as error:
            self._listed.put(error)

    def _submission(self, name: str) -> bytes | StoreError | None:
        """Return a submission; None for a job that was started by hand, an error for what cannot be read now."""
        try:
            return self._store.read(orders.Submission.place(job=name))
        except StoreError as error:
            # A link in place of its folder, for instance, must not hold up the others.
            self._say_once(f"job {name}: its submission cannot be read ({error})")
            return error

    def hosts_of(self, jobs: Collection[str]) -> dict[str, str]:
        """Return the machines whose cards stand for the holders of these jobs, by job.  Raises StoreError."""
        beats = filter(None, map(records.beat_of, self._store.names(records.BEATS) if jobs else ()))
        newest = sorted(beats, key=lambda beat: beat.number)
        return {beat.job: beat.host for beat in newest if beat.host and beat.job in jobs}

    def forget_notes(self) -> None:
        """Remove the notes that were read.  One that stays is read again."""
        read, self._notes = list(self._notes), set()
        each(self.remove, [f"{orders.NEWS}/{note}" for note in read], READERS)

    def remove(self, key: str) -> None:
        """Remove a key that only saves requests."""
        try:
            self._store.remove(key)
        except StoreError as error:
            self._say_once(f"{key} cannot be removed ({error})")

    def listen(self, jobs: Iterable[tuple[str, Followed]]) -> None:
        """Look which holders have renewed.  Raises StoreError."""
        listed = [(name, job) for name, job in jobs if job.holder is not None]
        if self._now() < self._beats_at or not listed:
            return
        lasts = min(job.holder.holder.lasts for _, job in listed if job.holder is not None)
        versions = self._store.versions(records.BEATS)
        found = {one: beat for one in versions if (beat := records.beat_of(one)) is not None}
        hosts = {(beat.job, beat.number): beat.host for beat in found.values() if beat.host}
        cards = self._store.versions(records.CARDS) if hosts else {}
        now, numbers = self._now(), {name: job.tail.number for name, job in listed}
        # By holders that were killed.
        left = [f"{records.BEATS}/{one}" for one, beat in found.items() if beat.number < numbers.get(beat.job, 0)]
        each(self.remove, left[:READERS], READERS)
        self._beats_at = now + min(BEATS, lasts / lease.LOOKS * 2)
        for name, job in listed:
            claim, before = job.holder, job.watch
            if claim is None:
                continue
            card = cards.get(hosts.get((name, claim.number), ""), "")
            version = f"{versions.get(records.beat_name(name, claim.number), '')} {card}"
            if before is None or version != job.beat:
                job.beat, job.watch = version, Watch("", 0.0, now)
            else:
                job.watch = lease.watched(before, before.mark, now, claim.holder.lasts)
                if lease.is_suspect(job.watch, claim.holder.lasts):
                    job.looks_at = min(job.looks_at, now)

    def read(self, jobs: Sequence[tuple[str, Followed]], many: int) -> dict[str, StoreError | Damaged]:
        """Read jobs; return why some cannot be read.  `many`: jobs that are followed."""

        def seen(one: tuple[str, Followed]) -> _Seen | StoreError | Damaged:
            try:
                return self._look(*one)
            except (StoreError, Damaged) as error:
                return error

        failed: dict[str, StoreError | Damaged] = {}
        for (name, job), found in zip(jobs, each(seen, jobs, READERS), strict=True):
            if isinstance(found, _Seen):
                self._note(job, found, many)
            else:
                failed[name] = found
                if isinstance(found, Damaged):  # until a person mends it
                    job.looks_at = self._now() + RESTS
        return failed

    def _note(self, job: Followed, found: _Seen, many: int) -> None:
        """Keep what was read of a job, and say when it is read again."""
        if found.tail.number != job.tail.number:
            job.watch, job.beat = None, ""
        job.is_damaged = False
        job.tail, job.stop, job.refusals, job.read_at = found.tail, found.stop, found.refusals, found.at
        share = RESTS_EACH * many * (0.5 + job.place * GOLDEN_RATIO % 1)
        rests, claim = RESTS if job.is_begun and job.holder is None else max(RESTS, share), job.holder
        if claim is None:
            job.watch = None
        else:
            lasts, before = claim.holder.lasts, job.watch
            if before is not None and not before.mark:  # the silence that the listings show goes on
                before = before._replace(mark=found.mark)
            job.watch = lease.watched(before, found.mark, found.at, lasts)
            if lease.is_suspect(job.watch, lasts):
                rests = min(RESTS, lasts / lease.LOOKS)
        job.looks_at = self._now() + rests

    def _look(self, name: str, job: Followed) -> _Seen:
        """Read the end of the log, the lease, and what is ordered and refused.  Changes nothing: it is in a thread."""
        there = self._store.names(f"jobs/{name}")
        tail, mark = job.tail, ""
        if not tail.slot and records.LOG in there:
            tail = perform(joblog.read_end(name), self._store)
        elif tail.slot and tail.is_free:
            tail = perform(joblog.catch_up(name, tail), self._store)
        if not tail.is_free:
            tail, mark = perform(joblog.look(name, tail), self._store)
        at = self._now()
        stop = self._stop(name) if orders.STOP in there else None
        refusals = list[Refusal]()
        if tail.is_free and orders.REFUSALS in there:
            folder = orders.refusals_folder(name)  # a machine whose refusal is damaged is asked again
            hosts = self._store.names(folder)
            refusals = records_of(
                self._store, folder, hosts, lambda data, host: orders.decode_refusal(data, name, host, self._signatures)
            )
        return _Seen(tail, mark, at, stop, refusals)

    def _stop(self, name: str) -> Stop | None:
        data = self._store.read(orders.Stop.place(job=name))
        try:
            return orders.decode_stop(data, self._signatures, name) if data is not None else None
        except Damaged as error:  # each program that can write to the store could have put it there
            self._say_once(f"job {name}: an order to stop it is refused: {error}")
            return None
