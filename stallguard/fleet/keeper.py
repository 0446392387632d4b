"""Keeps the lease of a job while its training goes on, and ends the training if that is not possible.

Two threads: one renews, and can stand still as long as the store does not answer; the other counts, and never touches
the store.  They share one queue.  The second gives the orders of lease.judge to the run.  With each renewal the first
one also reads whether a person has stopped the job; then the training ends with a checkpoint, as at the end of a lease.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import NamedTuple

from stallguard.fleet import joblog, lease
from stallguard.fleet.joblog import Fenced, Tail, perform
from stallguard.fleet.lease import Tenure
from stallguard.fleet.records import beat_key
from stallguard.fleet.store import Store, StoreError
from stallguard.worker import Worker

TICKS = 10  # for each renewal: how often is counted
RETRIES = 3  # for each renewal: how soon one that failed is repeated
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


class LeaseKeeper:
    """Of one holder, from `start` to `close`."""

    def __init__(
        self, store: Store, job: str, tail: Tail, began: float, lasts: float, now: Callable[[], float],
        *, ends_if_away: bool = True, asked: Callable[[], str] = lambda: "",
    ) -> None:  # fmt: skip
        """`tail`: with our claim, which was made at `began` by `now`; `lasts`: seconds of a lease.

        `ends_if_away`: end the training if the lease cannot be renewed; else only if another machine has it;
        `asked`: reads why a person has stopped the job, "" if it is not stopped; it can raise StoreError.
        """
        self.stopped = ""  # why a person has stopped the job
        self._asked = asked
        self._ends_if_away = ends_if_away
        self._store, self._job, self._lasts, self._now = store, job, lasts, now
        self._tail, self._number, self._claim = tail, tail.number, tail.claim
        self._tenure = Tenure(lease.HELD, tail.number, began)
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
        self._renewer.join(CLOSES)

    def _renew(self) -> None:
        beat, period = 0, self._lasts / lease.PER_LEASE
        wait = 0.0  # the first at once: a claim alone does not show a reader that its holder lives
        while not self._closed.wait(wait):
            began, beat = self._now(), beat + 1
            try:
                self._tail = perform(joblog.renew(self._job, self._tail, self._number, beat), self._store)
            except Fenced as error:
                self._news.put(_Lost(str(error)))
                break
            except StoreError as error:
                self._trouble = str(error)
                wait = period / RETRIES
            else:
                self._news.put(_Renewed(began))
                self._hear()
                wait = max(0.0, began + period - self._now())
        if self._claim is not None and self._claim.holder.listed:  # else it would be listed for ever
            with contextlib.suppress(StoreError):
                self._store.remove(beat_key(self._job, self._claim))

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
        tick = self._lasts / lease.PER_LEASE / TICKS
        why, counted = "", self._now()
        while not self._closed.is_set():
            news: _Renewed | _Lost | _Stopped | _Attached | None
            try:
                news = self._news.get(timeout=tick)
            except queue.Empty:
                news = None
            now, tenure = self._now(), self._tenure
            if now - counted > self._lasts / lease.PER_LEASE:
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
            orders: tuple[str, ...] = ()
            if self._ends_if_away or tenure.state == lease.FENCED:
                tenure, orders = lease.judge(tenure, now, self._lasts)
            self._tenure = tenure
            because = why or f"the lease of {self._job} cannot be renewed ({self._trouble})"
            pending += [(order, because) for order in orders]
            while act is not None and pending:
                act(*pending.pop(0))
