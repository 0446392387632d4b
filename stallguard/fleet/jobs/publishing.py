"""The thread that publishes the newest checkpoints of a run beside its training.

It looks every LOOK seconds for a generation that is newer, skips those that were replaced meanwhile, and pauses after a
publication so that the processor time of publishing stays below `share` of the time.  What it costs is measured for the
whole process of stallguard, so it is rather less.  An error of the store is reported once and tried again, later each
time; it never ends the run.  Only `conclude` is waited for.

**What people read.**  How the run stands goes into the card of the machine, which is written anyway (machine_beat.py);
if none stands for the run, it is put into the store every SHOW seconds.  Journal, output and evidence are put if there
is a reason: a checkpoint was published, the state of the run is another one or there is one more incident, a reader
asks (`want`), the run is over, or SELDOM seconds have passed.  A run that goes well makes next to no requests then.

**An end that could not be published** is kept on this machine, as one file of fleet/kept/, and published as soon as the
store takes it, by the worker of this machine or by the next run of the job here; it is removed after it was published
or refused.  The training is over, so nothing renews its lease.  If another machine has claimed the job by then, the log
refuses what the earlier holder publishes (joblog.py), and the end is of no use any more.  Else no machine trains it:
the end is published with the last checkpoints.  Two that try at once write the same slot of the log, which one of them
gets.
"""

from __future__ import annotations

import contextlib
import queue
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.jobs import generations
from stallguard.fleet.jobs.generations import Digests, Publication, Unstable, freeze, listing
from stallguard.fleet.jobs.readable_files import ReadableFiles
from stallguard.fleet.machines.machine_beat import MachineFiles
from stallguard.fleet.store import Store, StoreError, joblog, orders
from stallguard.fleet.store.joblog import Fenced, perform
from stallguard.fleet.store.orders import RunStatus
from stallguard.fleet.store.signing import Signatures
from stallguard.storage import paths, private, run_files
from stallguard.storage.paths import RunDir
from stallguard.worker import Worker

LOOK = 2.0  # s
RETRY, LONGEST = 5.0, 60.0  # s until a publication that failed is tried again
CLOSES = 2.0  # s
SHOW = 10.0  # s between two looks at what people read, and between two copies for readers
SELDOM = 1800.0  # s after which the readable files are put without another reason
FOLDER = "publishing"
ELSEWHERE = "another machine has the lease"
SCHEMA = 1  # of a kept end
PATIENCE = 10.0  # s for one try
SHARE = 1.0  # of the time, as processor time: no training runs beside it


class PublishingReports(NamedTuple):
    """Where it is said what happens: a problem, what the journal alone has, and that the lease is another's."""

    trouble: Callable[[str], None]
    note: Callable[[str], None]
    fenced: Callable[[str], None]


class _End(NamedTuple):
    code: int
    why: str
    until: float
    facts: dict[str, Any]


class PublishingThread:
    """Of one run, from `start` to `conclude` or `close`."""

    def __init__(
        self, store: Store, job: str, publication: Publication, run: RunDir, share: float, reports: PublishingReports,
        status: Callable[[], Any], machine: MachineFiles | None = None,
    ) -> None:  # fmt: skip
        """`share`: of the time, as processor time; `status`: returns how the run stands, from any thread.

        `machine`: what there is to do with the worker of this machine, None: it has none.
        """
        self._store, self._job, self._publication, self._run = store, job, publication, run
        self._share, self._reports = share, reports
        self._published: object = None
        self._digests = Digests()
        claim = publication.tail.claim
        host = claim.holder.host if claim else ""
        self._readable = ReadableFiles(store, job, publication.tail.number, host, run)
        self._status, self._machine, self._number = status, machine, publication.tail.number
        self._show_at, self._put_at, self._is_shown = 0.0, -SELDOM, True
        self._shown: tuple[object, ...] = ()  # the state of the run as the files were put last
        self._is_wanted = False
        self._is_failing = self._is_fenced = False
        self._failure = ""
        self._orders: queue.SimpleQueue[_End | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._worker = Worker(self._work, "publishing")

    def start(self) -> None:
        """Begin.  Raises RuntimeError or MemoryError if there is no thread."""
        self._worker.start()

    def want(self) -> None:
        """Put what people read soon: a person reads it.  From any thread."""
        self._is_wanted = True

    def conclude(self, code: int, why: str, patience: float, **facts: Any) -> str:
        """Publish the last checkpoints and how the run ended; return why that was not possible, "" if it was.

        `patience`: seconds to try for; `facts`: of records.HolderEnd.
        """
        self._orders.put(_End(code, why, time.monotonic() + patience, facts))
        try:
            return self._ended.get(timeout=patience + CLOSES)
        except queue.Empty:
            return "the store does not answer"

    def close(self) -> None:
        """End the thread, unless the store does not answer."""
        self._orders.put(None)
        self._worker.join(CLOSES)

    def _work(self) -> None:
        wait, retry = LOOK, RETRY
        while not self._is_fenced:
            try:
                order = self._orders.get(timeout=wait)
            except queue.Empty:
                began, used = time.monotonic(), time.process_time()
                done = self._try(self._publish_newest)
                self._show()
                wait, retry = (LOOK, RETRY) if done else (retry, min(LONGEST, retry * 2))
                wait = max(wait, (time.process_time() - used) / self._share - (time.monotonic() - began))
                continue
            if order is not None:
                self._ended.put(self._conclude(order))
            return
        order = self._orders.get()
        if order is not None:
            self._ended.put(ELSEWHERE)

    def _try(self, step: Callable[[], None]) -> bool:
        """Do a step; report the first error of several in a row, and the end of them."""
        try:
            step()
        except Fenced as error:
            self._is_fenced = True
            self._reports.fenced(str(error))
        except (StoreError, OSError, Unstable) as error:
            if not self._is_failing:
                self._reports.trouble(f"a checkpoint is not published ({error}); it is tried again")
            self._is_failing = True
            self._failure = str(error)
            return False
        if self._is_failing:
            self._reports.note("checkpoints are published again")
        self._is_failing = False
        return True

    def _publish_newest(self) -> None:
        now = listing(self._run.checkpoints)
        if not now or now == self._published:
            return
        folder = self._run.path / FOLDER
        try:
            frozen = freeze(self._run.checkpoints, folder, self._run.trackers)
            found = self._digests.found(frozen)
            before = self._publication.tail.newest
            steps = self._publication.publish(self._run.id, run_files.utc(), frozen.position, found)
            perform(steps, self._store)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._published = frozen.listing
        newest = self._publication.tail.newest
        if newest == before:
            return  # the training is not beyond what is published
        generations.keep(self._run, self._store.url, self._job, newest)
        self._reports.note(f"published a checkpoint at slot {newest} of job {self._job}")
        perform(self._publication.clean(), self._store)

    def _show(self) -> None:
        """Put what is readable, if it is time; of several failures in a row the journal gets the first."""
        now = time.monotonic()
        is_read = self._is_wanted and now >= self._put_at + SHOW
        if self._is_fenced or (now < self._show_at and not is_read):
            return
        self._show_at = now + SHOW
        self._is_wanted = self._is_wanted and not is_read
        try:
            status: dict[str, Any] = msgspec.to_builtins(self._status())
            stands = RunStatus(orders.SCHEMA, run_files.utc(), status)
            if self._machine is None or not self._machine.report(self._job, self._number, stands):
                self._readable.put_status(stands)
            state = (status.get("state"), status.get("incidents"), self._publication.tail.newest)
            if is_read or state != self._shown or now >= self._put_at + SELDOM:
                is_all = self._readable.renew(is_read=is_read)
                self._shown, self._put_at = state if is_all else (), now  # the rest with the next look
        except Exception as error:  # noqa: BLE001 - it must not end the publishing of checkpoints
            if self._is_shown:
                self._reports.note(f"journal and output are not in the store ({error}); it is tried again")
            self._is_shown = False
            self._is_wanted = self._is_wanted or is_read
        else:
            self._is_shown = True

    def _conclude(self, order: _End) -> str:
        def publish() -> None:
            self._publish_newest()
            steps = self._publication.conclude(self._run.id, run_files.utc(), order.code, order.why, **order.facts)
            perform(steps, self._store)
            self._readable.renew(sys.maxsize)

        retry = RETRY / 5
        while not self._try(publish):
            if time.monotonic() + retry >= order.until:
                return self._failure
            time.sleep(retry)
        return ELSEWHERE if self._is_fenced else ""


class KeptEnd(msgspec.Struct, frozen=True):
    """How a run ended.  `number`: of its holder; `facts`: of records.HolderEnd beside code and why."""

    schema: int
    store: str
    job: str
    run: str
    number: int
    code: int
    why: str
    facts: dict[str, Any] = {}


def keep(end: KeptEnd) -> None:
    """Keep an end.  Raises OSError."""
    path = _path(end)
    private.ensure(path.parent)
    run_files.write(path, end)


def kept(store: str, job: str = "") -> list[KeptEnd]:
    """Return what is kept for a store, and for one job of it."""
    found = []
    for path in sorted((paths.home() / "fleet" / "kept").glob("*.json")):
        with contextlib.suppress(OSError, *UNREADABLE):  # being removed, or of a newer version
            end = jsontext.decode(path.read_bytes(), KeptEnd)
            if end.store == store and job in ("", end.job):
                found.append(end)
    return found


def publish(end: KeptEnd, store: Store, signatures: Signatures | None) -> str:
    """Publish an end; return why that is not possible yet, "" if it is over.  Raises StoreError and Damaged.

    `signatures`: of this member, None for who is in no fleet.
    """
    tail = perform(joblog.read_end(end.job), store)
    why = ""
    if tail.number < end.number:
        return "the log of the job lacks the claim of this run"  # a store that was put back: nothing is removed here
    if tail.number == end.number and not tail.is_free:
        run = paths.RunDir(paths.runs_dir() / end.run)
        nothing = PublishingReports(lambda _: None, lambda _: None, lambda _: None)
        publication = Publication(end.job, end.number, tail, signatures)
        thread = PublishingThread(store, end.job, publication, run, SHARE, nothing, lambda: None)
        thread.start()
        try:
            why = thread.conclude(end.code, end.why, PATIENCE, **end.facts)
        finally:
            thread.close()
    if why in ("", ELSEWHERE):
        _path(end).unlink(missing_ok=True)
        return ""
    return why


def _path(end: KeptEnd) -> Path:
    return paths.home() / "fleet" / "kept" / f"{end.run}.json"
