"""Takes a job, keeps its lease while its training goes on, and ends the training if that is not possible.

**To take it.**  A job that is free is taken at once, one whose holder is gone after a silence, one that is done not at
all.  Whether a holder lives cannot be asked, only watched: a live one, or its machine, changes a key within half of the
lease, so a second start of a job that is being trained says within that time who has it.

**To keep it.**  Two threads: one renews, and can stand still as long as the store does not answer; the other counts,
and never touches the store.  They share one queue.  The second gives the orders of lease.judge to the run.

If the worker of the machine renews the lease with its card (machine_beat.py), the second thread sees it in a file, and
the first one writes nothing.  If the card is overdue, the first one renews, as it does without a worker.

With each renewal of its own, if the worker asks for it, and else every STOPS seconds, the first thread also reads
whether a person has stopped the job; then the training ends with a checkpoint, as at the end of a lease.  The worker
asks for it too if a person reads the run.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

from stallguard.fleet.machines import lease
from stallguard.fleet.machines.lease import Tenure, Upkeep, Watch
from stallguard.fleet.machines.machine_beat import MachineFiles
from stallguard.fleet.store import Store, StoreError, joblog
from stallguard.fleet.store.joblog import Fenced, Steps, Tail, perform
from stallguard.fleet.store.records import Claim, Holder, HolderEnd, beat_key, beat_name
from stallguard.worker import Worker

TICKS = 60  # for each lease: how often is counted
SHOWS = 0.5  # s, the least between two signs for the worker of the machine
# s between two looks at the order to stop a job, if the worker of the machine is notified of one
STOPS = 1800.0
CLOSES = 2.0  # s that the end of a run waits for the thread that counts

Act = Callable[[str, str], None]  # given an order of lease.ORDERS, and why


class _Renewed(NamedTuple):
    began: float


class _Lost(NamedTuple):
    why: str


class _Stopped(NamedTuple):
    why: str


class _Attached(NamedTuple):
    act: Act


def kept(
    what: str, job: str, tail: Tail, beat: int, upkeep: Upkeep, now: Callable[[], float], lasts: float
) -> Steps[tuple[Tail, Upkeep]]:
    """Do what lease.due found for a holder; return its log's end, and what is done.  Raises Fenced, and StoreError.

    `tail`: with its claim; `beat`: another number each time; `upkeep`: tried just now.
    """
    assert tail.claim is not None  # noqa: S101 - the holder's own
    is_sure = what != lease.CHECK
    if what == lease.RENEW:
        yield from joblog.renew(job, tail.claim, beat)
        is_sure = lease.is_unbroken(upkeep.renewed, now(), lasts)
    if not is_sure:
        tail = yield from joblog.still_held(job, tail, tail.number)
        upkeep = upkeep._replace(checked=upkeep.tried)
    return tail, upkeep._replace(renewed=upkeep.tried, by_machine=False) if what == lease.RENEW else upkeep


class LeaseKeeper:
    """Of one holder, from `start` to `close`."""

    def __init__(
        self, store: Store, job: str, tail: Tail, began: float, lasts: float, now: Callable[[], float],
        *, ends_if_away: bool = True, asked: Callable[[], str] = lambda: "", machine: MachineFiles | None = None,
    ) -> None:  # fmt: skip
        """`tail`: with our claim, which was made at `began` by `now`; `lasts`: seconds of a lease.

        `ends_if_away`: end the training if the lease cannot be renewed; else only if another machine has it;
        `asked`: reads why a person has stopped the job, "" if it is not stopped; it can raise StoreError;
        `machine`: what there is to do with the worker of this machine, None: it has none.
        """
        self.stopped = ""  # why a person has stopped the job
        self._asked = asked
        self._ends_if_away = ends_if_away
        self._store, self._job, self._lasts, self._now = store, job, lasts, now
        assert tail.claim is not None  # noqa: S101 - ours
        self._tail, self._number, self._claim = tail, tail.number, tail.claim
        self._tenure = Tenure(lease.HELD, tail.number, began)
        self._machine, self._shown_at = machine, 0.0
        # Of the last card that stood for this lease: when it began, and how often its worker has asked.
        self._card, self._asks = 0.0, 0
        is_expected = self._has_worker()
        # Without a worker the first is due at once: a claim alone does not show a reader that its holder lives.
        due_since = began if is_expected else began - lasts * lease.ALONE
        self._upkeep = Upkeep(due_since, began, began - lasts, is_expected)
        self._beat, self._heard, self._heard_at = 0, 0, began
        self._news: queue.SimpleQueue[_Renewed | _Lost | _Stopped | _Attached] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._trouble = ""
        self._counter = Worker(self._count, "lease")
        self._renewer = Worker(self._renew, "lease renewal")

    def start(self) -> None:
        """Begin.  Raises RuntimeError or MemoryError if there is no thread."""
        self._renewer.start()
        self._counter.start()

    def attach(self, act: Act) -> None:
        """Give all orders to `act`, also those that were due before; from the thread that counts."""
        self._news.put(_Attached(act))

    def fenced(self, why: str) -> None:
        """Note that a publication was refused, because another holder has the lease; from any thread."""
        self._news.put(_Lost(why))

    def close(self) -> None:
        """Stop renewing: the run is over."""
        self._closed.set()
        self._counter.join(CLOSES)
        if self._machine is not None:
            self._machine.leave(self._job)
        self._renewer.join(CLOSES)

    def _has_worker(self) -> bool:
        """Return whether the worker of this machine has written a card just now: soon one stands for this lease."""
        found = self._machine.renewals() if self._machine is not None else None
        return found is not None and self._now() - found.began < self._lasts * lease.OVERDUE

    def _renew(self) -> None:
        while not self._closed.is_set():
            try:
                self._keep()
            except Fenced as error:
                self._news.put(_Lost(str(error)))
                break
            except StoreError as error:
                self._trouble = str(error)
            self._closed.wait(self._lasts / TICKS)
        if self._beat:  # else it would be listed for ever
            with contextlib.suppress(StoreError):
                self._store.remove(beat_key(self._job, self._claim))

    def _keep(self) -> None:
        """Do what is due for the lease.  Raises Fenced, and StoreError."""
        now, upkeep = self._now(), self._upkeep
        if self._card > upkeep.renewed:
            upkeep = upkeep._replace(renewed=self._card, by_machine=True)
        what = lease.due(upkeep, now, self._lasts)
        self._upkeep = upkeep._replace(tried=now) if what else upkeep
        if what:
            self._beat += 1
            steps = kept(what, self._job, self._tail, self._beat, self._upkeep, self._now, self._lasts)
            self._tail, self._upkeep = perform(steps, self._store)
        if what == lease.RENEW:
            self._news.put(_Renewed(now))
        if what == lease.RENEW or self._asks != self._heard or now >= self._heard_at + STOPS:
            self._heard, self._heard_at = self._asks, now
            self._hear()

    def _with_machine(self, machine: MachineFiles, tenure: Tenure, now: float) -> Tenure:
        """Show the worker of the machine that this run lives; return the tenure after what its last card renewed."""
        if tenure.state == lease.FENCED:
            machine.leave(self._job)
            return tenure
        if now >= self._shown_at + max(SHOWS, self._lasts / TICKS):
            self._shown_at = now
            machine.show(self._job, self._number, self._lasts, now)
        found, name = machine.renewals(), beat_name(self._job, self._claim.number)
        if found is None or name not in found.asks:
            return tenure
        self._asks = found.asks[name]
        after = lease.renewed_by_machine(tenure, found.began, found.answered, self._lasts)
        if after != tenure:
            self._card = found.began
        return after

    def _hear(self) -> None:
        """Look whether the job was stopped; a store that does not answer is asked with the next renewal.

        The order is repeated with each renewal: a training that stalls right now ends only later.
        """
        with contextlib.suppress(StoreError):
            self.stopped = self.stopped or self._asked()
        if self.stopped:
            self._news.put(_Stopped(self.stopped))

    def _count(self) -> None:
        act: Act | None = None
        pending: list[tuple[str, str]] = []
        tick = self._lasts / TICKS
        why, counted = "", self._now()
        while not self._closed.is_set():
            news: _Renewed | _Lost | _Stopped | _Attached | None
            try:
                news = self._news.get(timeout=tick)
            except queue.Empty:
                news = None
            now, tenure = self._now(), self._tenure
            if now - counted > self._lasts * lease.STILL:
                tenure = tenure._replace(woke=now)
            counted = now
            if isinstance(news, _Renewed):
                tenure = lease.renewed(tenure, news.began)
            elif isinstance(news, _Lost):
                tenure, why = lease.moved(tenure, "fenced", now), news.why
            elif isinstance(news, _Stopped):
                pending.append(("end", news.why))
            elif news is not None:
                act = news.act
            if self._machine is not None:
                tenure = self._with_machine(self._machine, tenure, now)
            orders: tuple[str, ...] = ()
            if self._ends_if_away or tenure.state == lease.FENCED:
                tenure, orders = lease.judge(tenure, now, self._lasts)
            self._tenure = tenure
            because = why or f"the lease of {self._job} cannot be renewed ({self._trouble})"
            pending += [(order, because) for order in orders]
            while act is not None and pending:
                act(*pending.pop(0))


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
) -> Taken | HolderEnd:
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
            Watch(mark, lasts, watching.now()) if mark == quiet else lease.watched(before, mark, watching.now(), lasts)
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
