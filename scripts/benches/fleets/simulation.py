"""The scheduler's own dispatcher with a thousand simulated machines, in one process, in real time.

The machines do what those of the product do to the store: cards, claims, renewals, ends, what people read, with the
product's own steps; they publish no checkpoints.
The engine is simulated: it brings a start to a machine at once.
"""

from __future__ import annotations

import datetime as dt
import gc
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fleets.simulated_store import Memory, SimulatedStore
from harness.results import Goal, against, number, table
from stallguard.fleet.engine.dispatcher import Deps, Dispatcher
from stallguard.fleet.engine.scheduler_process import TURN
from stallguard.fleet.engine.worker_process import LISTS_AT_LEAST, NAMES, RENEWS
from stallguard.fleet.jobs import archive, job_table
from stallguard.fleet.jobs.dispatch import UNKNOWN, ConnectedMachine, Placed, Start
from stallguard.fleet.jobs.publishing import SELDOM
from stallguard.fleet.jobs.readable_files import ReadableFiles
from stallguard.fleet.machines import authority, lease
from stallguard.fleet.machines.keeper import STOPS
from stallguard.fleet.machines.machine_beat import Standing
from stallguard.fleet.store import joblog, membership, orders
from stallguard.fleet.store.joblog import Tail, perform
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.orders import Code, RunStatus, Submission, WorkerCard
from stallguard.fleet.store.records import OF, Holder, HolderEnd, decode
from stallguard.fleet.store.signing import REVOKED, Signatures
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

ANSWERS = 0.02  # s
WAITING, FINISHED = 10, 100  # jobs for each machine
DAYS = 100  # on which they finished
JOB = 3600.0  # s that a job runs: so many end in a minute
TICK = 0.05  # s
# What must hold.  Requests: for each machine, and beside them.
TURN_MOST, START_MOST, TABLE_MOST, LATE, EACH, BESIDE = 1.0, 30.0, 1.0, 15.0, 2.0, 60.0


# How a run of the product stands, shortened: about as many bytes as that of a run that goes well.
STANDS = {
    "state": "running", "attempt": 1, "seconds": 1800.5, "batches": 22000, "silent": 0.1, "rates": {"batches": 12.5},
    "judgement": {"step": "healthy", "evidence": "working", "threshold": 45.0},
    "progress": {"epoch": 3, "epochs": 10, "batch": 4, "batches": 100, "loss": 0.5},
    "readings": {name: {"value": 0.5, "of": "x" * 200} for name in ("process", "device", "memory", "machine")},
    "spots": [{"file": "train.py", "line": 40 + one, "share": 0.3, "text": "y" * 80} for one in range(3)],
}  # fmt: skip


class _Run:
    """A job that a machine trains, and what people read of it, which its machine puts as publishing.py does."""

    def __init__(self, job: str, tail: Tail, due: float, store: SimulatedStore, host: str, folder: Path) -> None:
        self.job, self.tail, self.due = job, tail, due  # when it looks again whether it is stopped
        self._run = RunDir(folder / job)
        self._run.path.mkdir()
        self._readable = ReadableFiles(store, job, tail.number, host, self._run)
        for path in (self._run.asked, self._run.path / "job.json"):
            path.write_text("{}\n")
        self.puts = time.monotonic()

    def put(self) -> None:
        """Put what people read, after its journal and output have grown."""
        self.puts = time.monotonic() + SELDOM
        for path in (self._run.journal, self._run.output):
            with path.open("a", encoding="utf-8") as file:
                file.write("a line\n")
        self._readable.renew()

    def end(self) -> None:
        (self._run.path / "outcome.json").write_text("{}\n")
        self.put()
        shutil.rmtree(self._run.path)

    @property
    def name(self) -> str:
        return f"{self.job}{OF}{self.tail.number}"


class Machines:
    """All machines, in one thread; they implement engine.Engine too."""

    def __init__(self, memory: Memory, count: int, lasts: float) -> None:
        """`lasts`: seconds of a lease."""
        self.hub, *self._members = _members("hub", *(f"m{one:04}" for one in range(count)))
        self.store, self._lasts = SimulatedStore(memory, 0.0), lasts
        self.hosts = [f"m{one:04}" for one in range(count)]
        self._runs: dict[str, _Run] = {}  # by host
        self._asked: list[Start] = []
        self._placed: dict[str, Placed] = {}
        self._away: set[str] = set()
        began, self._renews = time.monotonic(), min(RENEWS, lasts * lease.BY_MACHINE)
        self._cards = dict.fromkeys(self.hosts, began)
        self._looks = {host: began + NAMES * place / count for place, host in enumerate(self.hosts)}
        self._lists = {host: began + LISTS_AT_LEAST * place / count for place, host in enumerate(self.hosts)}
        self._standing = {host: Standing(host) for host in self.hosts}
        self._ends = time.monotonic() + JOB / count
        self._folder = Path(tempfile.mkdtemp(prefix="sg-bench-"))
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self.work, daemon=True)

    def start_thread(self) -> None:
        """Let all machines work; they did not begin at once."""
        now, each = time.monotonic(), self._renews / len(self.hosts)
        self._cards = {host: now + each * place for place, host in enumerate(self.hosts)}
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        shutil.rmtree(self._folder)

    def train(self, host: str, job: str) -> None:
        holder = Holder(host=host, boot="b", pid=1, nonce=f"{host}-{job}", lasts=self._lasts)
        tail = perform(joblog.read_end(job), self.store)
        tail, _ = perform(joblog.claim(job, tail, holder, run_files.utc()), self.store)
        now, share = time.monotonic(), self.hosts.index(host) / len(self.hosts)
        self._runs[host] = run = _Run(job, tail, now + STOPS * share, self.store, host, self._folder)
        run.put()
        if not self._thread.is_alive():  # it began some time before
            run.puts = now + SELDOM * share
        self._cards[host] = 0.0  # its worker sees that it has another run

    def vanish(self) -> str:
        with self._lock:
            host = next(iter(self._runs))
            self._away.add(host)
            del self._runs[host]
            return host

    def work(self) -> None:
        while not self._closed.wait(TICK):
            with self._lock:
                now = time.monotonic()
                for host, due in self._cards.items():
                    if due <= now and host not in self._away:
                        self._cards[host] = now + self._renews
                        self.card(host)
                for host, due in self._looks.items():
                    if due <= now and host not in self._away:
                        self._looks[host] = due + NAMES
                        self.store.read(orders.WorkerCard.place(host=host))
                for host, due in self._lists.items():
                    if due <= now and host not in self._away:
                        self._lists[host] = due + LISTS_AT_LEAST
                        self.store.read(REVOKED)
                for run in self._runs.values():
                    if run.due <= now:
                        run.due += STOPS
                        self.store.read(orders.Stop.place(job=run.job))
                    if run.puts <= now:
                        run.put()
                if self._ends <= now and self._runs:
                    self._ends = now + JOB / len(self.hosts)
                    self.end(next(iter(self._runs)))
                for start in self._asked:
                    self.train(start.address, start.job)
                    self._placed[start.job] = Placed(False, is_begun=True)
                self._asked.clear()

    def card(self, host: str) -> None:
        """Renew the card of a machine, and with it the lease of its run, as its worker does."""
        jobs = (self._runs[host].job,) if host in self._runs else ()
        alive = (self._runs[host].name,) if host in self._runs else ()
        stands = RunStatus(orders.SCHEMA, run_files.utc(), STANDS)
        card = WorkerCard(
            schema=orders.SCHEMA, host=host, at=run_files.utc(), state="busy" if jobs else "ready", worker="w",
            address=host, resources={"slots": 1.0, "memory": 32.0}, jobs=jobs, versions={"keras": "3.12"}, home=host,
            statuses=dict.fromkeys(alive, stands),
        )  # fmt: skip
        data = orders.encode(card, self._members[self.hosts.index(host)])
        perform(self._standing[host].renew(alive, data), self.store)

    def end(self, host: str) -> None:
        run = self._runs.pop(host)
        end = HolderEnd(number=run.tail.number, claim=0, run="r", code=0, why="it ended")
        perform(joblog.append(run.job, run.tail, run.tail.number, end), self.store)
        run.end()
        self._placed[run.job] = Placed(True)
        self._cards[host] = 0.0

    def machines(self) -> list[ConnectedMachine]:
        with self._lock:
            return [
                ConnectedMachine(host, "w", host, {"slots": float(host not in self._runs), "memory": 32.0})
                for host in self.hosts
                if host not in self._away
            ]

    def start(self, start: Start) -> None:
        with self._lock:
            self._asked.append(start)
            self._placed[start.job] = Placed(False)

    def placed(self, job: str) -> Placed:
        return self._placed.get(job, Placed(True, UNKNOWN))

    def forget(self, job: str) -> None:
        self._placed.pop(job, None)

    def retire(self, address: str) -> None:
        """See engine.Engine."""

    def notify(self, address: str, job: str) -> None:
        """See engine.Engine."""


def _members(*names: str) -> list[Signatures]:
    now = dt.datetime.now(dt.UTC)
    by, found = authority.make("fleet-simulated", now), []
    like = Membership(
        schema=membership.SCHEMA, fleet=by.fleet, name="", store="file:///nowhere", token="0" * 64,
        scheduler="tls://127.0.0.1:1", ca="", certificate="", key="",
    )  # fmt: skip
    for name in names:
        by, made = by.issue(like, name, 1, now)
        found.append(Signatures(made))
    return found


class Simulated(NamedTuple):
    """What was measured.  `requests`: a minute, by kind: of the scheduler, and of all machines."""

    start: float
    first: int  # requests of the scheduler until then
    turns: list[float]
    scheduler: dict[str, float]
    machines: dict[str, float]
    table: float
    jobs: int  # in the table of `ls --live`
    noticed: float
    again: int  # jobs that were trained a second time


def filled(count: int, lasts: float) -> tuple[Memory, Machines]:
    """Return a store with jobs, and its machines, each of which trains one."""
    memory = Memory()
    store = SimulatedStore(memory, 0.0)
    machines = Machines(memory, count, lasts)
    code = Code(digest="0" * 64, size=1)

    def submit(job: str, place: int) -> None:
        made = Submission(
            schema=1, job=job, words=("train.py", "--seed", job), options=(), code=code, by="ann@mini",
            at="2026-06-10T12:00:00Z", priority=place % 3, needs={"memory": 16.0} if place % 2 else {},
        )  # fmt: skip
        store.create(orders.Submission.place(job=job), orders.encode(made, machines.hub))

    rows = []
    for one in range(count * FINISHED):
        job = f"finished-{one:06}"
        submit(job, one)
        holder = Holder(host=machines.hosts[one % count], boot="b", pid=1, nonce=job, lasts=lasts)
        tail, _ = perform(joblog.claim(job, Tail(), holder, "2026-06-10T12:00:00Z"), store)
        end = HolderEnd(number=1, claim=1, run="r", code=0, why="it ended", at="2026-06-10T13:00:00Z")
        tail = perform(joblog.append(job, tail, 1, end), store)
        given = orders.decode_submission(store.read(orders.Submission.place(job=job)) or b"", machines.hub, job)
        rows.append(job_table.row(job, job_table.Read(tail, given), (), ()))
    for day in range(DAYS):
        archive.add(store, f"{dt.date(2026, 1, 1) + dt.timedelta(day)}", rows[day::DAYS])
    for one in range(count * WAITING):
        submit(f"waits-{one:06}", one)
    for one, host in enumerate(machines.hosts):
        submit(f"runs-{one:06}", one)
        machines.train(host, f"runs-{one:06}")
        machines.card(host)
    return memory, machines


def simulate(count: int, lasts: float, seconds: float, say: Callable[[str], None]) -> Simulated:
    """Measure a fleet of `count` machines.  `seconds`: for which turns are timed and requests are counted."""
    memory, machines = filled(count, lasts)
    gc.freeze()  # the store and the machines are other processes; a collection of their objects takes 0.3 s
    say(f"{len(memory.data):,} keys in the store")
    machines.start_thread()
    try:
        began = time.monotonic()
        store, said = SimulatedStore(memory, ANSWERS), list[str]()
        dispatcher = Dispatcher(store, machines.hub, machines, Deps(time.monotonic, run_files.utc, said.append))
        dispatcher.turn()
        start = time.monotonic() - began
        say(f"the scheduler has made its first turn after {start:.1f} s, with {sum(store.asked.values()):,} requests")
        first = sum(store.asked.values())
        before, others = store.asked.copy(), machines.store.asked.copy()
        counts = time.monotonic()
        turns = _turns(dispatcher, lambda: time.monotonic() >= counts + seconds)
        minutes = (time.monotonic() - counts) / 60
        asked = {kind: many / minutes for kind, many in (store.asked - before).items()}
        theirs = {kind: many / minutes for kind, many in (machines.store.asked - others).items()}
        say(f"{len(turns)} turns; the scheduler's requests a minute: { {k: round(v) for k, v in asked.items()} }")
        began = time.monotonic()
        rows = archive.fleet(SimulatedStore(memory, ANSWERS), machines.hub, is_alive=True).jobs
        shown = time.monotonic() - began
        alive = [row for row in rows if row.state in (job_table.RUNNING, job_table.WAITING)]
        say(f"ps reads {len(alive):,} jobs in {shown:.1f} s")
        began, host = time.monotonic(), machines.vanish()
        until = began + lasts * 4 + 60
        turns += _turns(dispatcher, lambda: orders.Cordon.place(host=host) in memory.data or time.monotonic() > until)
        noticed = time.monotonic() - began
        say(f"a machine that vanished is noticed after {noticed:.1f} s")
        logs = [(key.split("/")[1], data) for key, data in list(memory.data.items()) if "/log/" in key]
        again = {job for job, data in logs if decode(data).number > 1 and not job.startswith("runs-")}
        return Simulated(start, first, turns, asked, theirs, shown, len(alive), noticed, len(again))
    finally:
        machines.close()


def _turns(dispatcher: Dispatcher, is_over: Callable[[], bool]) -> list[float]:
    found = []
    while not is_over():
        began = time.monotonic()
        dispatcher.turn()
        found.append(time.monotonic() - began)
        time.sleep(TURN)
    return found


def goals(found: Simulated, count: int, lasts: float) -> list[Goal]:
    most = EACH * count + BESIDE
    scheduler, machines = sum(found.scheduler.values()), sum(found.machines.values())
    made = [
        Goal("turn, longest, s", max(found.turns), TURN_MOST),
        Goal("restart of the scheduler, s", found.start, START_MOST),
        Goal("requests a minute of the scheduler", scheduler, most),
        Goal("requests a minute of scheduler and machines", scheduler + machines, most),
        Goal(f"jobs of ps ({found.jobs:,}) are read, s", found.table, TABLE_MOST),
        Goal("a vanished machine is noticed, s", found.noticed, lasts + LATE),
        Goal("jobs trained a second time", found.again, 0),
    ]
    print(against(f"{count} machines", made))
    kinds = sorted({*found.scheduler, *found.machines})
    counted = [(kind, number(found.scheduler.get(kind, 0.0)), number(found.machines.get(kind, 0.0))) for kind in kinds]
    print(table(("requests a minute", "scheduler", "all machines"), counted))
    return made
