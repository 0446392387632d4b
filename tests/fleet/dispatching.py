"""A store with jobs, a dispatcher on it, an engine of the tests, and a clock that a test moves."""

from __future__ import annotations

from pathlib import Path

from stallguard.fleet.engine.dispatcher import Deps, Dispatcher
from stallguard.fleet.jobs.dispatch import UNKNOWN, ConnectedMachine, Placed
from stallguard.fleet.store import joblog, orders
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.joblog import perform
from stallguard.fleet.store.orders import Code, Refusal, Submission
from stallguard.fleet.store.records import Generation, Holder, HolderEnd, Position, StoredFile
from tests.fleet.members import signs

OWN, OTHER = signs("hub"), signs("hub", "other")  # a member of the fleet, and one of another
LASTS = 60.0
MAC = ConnectedMachine("mac", "w1", "tls://mac", {"slots": 1})
BOX = ConnectedMachine("box", "w2", "tls://box", {"slots": 1})


class TestEngine:
    """An engine that starts nothing: the test says what its machines do."""

    __test__ = False

    def __init__(self):
        self.connected = [MAC, BOX]
        self.starts, self.forgotten, self.retired, self.notified = [], [], [], []
        self.states = {}
        self.begins = True  # what a machine is given

    def machines(self):
        return [one for one in self.connected if one.address not in self.retired]

    def start(self, start):
        self.starts.append(start)
        self.states[start.job] = Placed(False)

    def placed(self, job):
        found = self.states.get(job, Placed(True, UNKNOWN))
        address = next((one.address for one in reversed(self.starts) if one.job == job), "")
        is_there = address in [one.address for one in self.machines()]
        return found if found.is_over else Placed(False, is_begun=found.is_begun or (self.begins and is_there))

    def forget(self, job):
        self.forgotten.append(job)
        self.states.pop(job, None)

    def notify(self, address, job):
        self.notified.append((address, job))

    def retire(self, address):
        self.retired.append(address)


class Fleet:
    """A store with jobs, and a dispatcher that can be started again."""

    def __init__(self, folder, signatures=OWN):
        """`folder`: an empty one, or a store."""
        if isinstance(folder, Path):
            folder.mkdir()
        self.signatures, self.folder = signatures, folder
        self.store = FolderStore(folder) if isinstance(folder, Path) else folder
        self.now, self.said = 1000.0, []
        self.begin()

    def begin(self):
        """Start a scheduler: it knows nothing of the one before."""
        self.engine = TestEngine()
        deps = Deps(lambda: self.now, lambda: "2026-06-10T12:00:00Z", self.said.append)
        self.dispatcher = Dispatcher(self.store, self.signatures, self.engine, deps)

    def turns(self, seconds=0):
        """Let a time pass, with a turn each second and one at once."""
        self.dispatcher.turn()
        for _ in range(seconds):
            self.now += 1
            self.dispatcher.turn()

    def submit(self, job="job", *, by=OWN, **more):
        code = Code(digest="0" * 64, size=1)
        made = Submission(schema=1, job=job, words=("t.py",), options=(), code=code, **more)
        assert self.store.create(orders.Submission.place(job=job), orders.encode(made, by))
        self.store.replace(orders.news_key(job), b"")

    def claim(self, host, job="job"):
        """A machine takes the job, as `stallguard run` does."""
        holder = Holder(host=host, boot="b", pid=1, nonce=f"{host}{self.now}", lasts=LASTS)
        tail, won = perform(joblog.claim(job, self.tail(job), holder, ""), self.store)
        assert won
        self.renew(job)
        return tail.number

    def tail(self, job="job"):
        return perform(joblog.read_end(job), self.store)

    def renew(self, job="job"):
        tail = self.tail(job)
        perform(joblog.renew(job, tail.claim, int(self.now * 1000)), self.store)

    def publish(self, batch, job="job"):
        file = StoredFile("a", 1, f"{batch:064x}", f"{batch}-x")
        tail = self.tail(job)
        entry = Generation(
            number=tail.number, claim=0, run="r", files=(file,), position=Position(1, 0, batch), at="noon"
        )
        perform(joblog.append(job, tail, tail.number, entry), self.store)

    def end(self, code, job="job", fault=""):
        """The run of the job ends, and the engine notices."""
        tail = self.tail(job)
        entry = HolderEnd(number=tail.number, claim=0, run="r", code=code, why="", fault=fault)
        perform(joblog.append(job, tail, tail.number, entry), self.store)
        self.engine.states[job] = Placed(True)

    def cordon(self, host):
        data = self.store.read(orders.Cordon.place(host=host))
        return orders.decode_cordon(data, host, OWN) if data else None

    def refuse(self, host, worker, why, job="job", by=None):
        """A machine says that it cannot begin the job."""
        refusal = Refusal(schema=1, job=job, host=host, worker=worker, at="", why=why)
        self.store.replace(orders.Refusal.place(job=job, host=host), orders.encode(refusal, by or signs(host)))

    @property
    def started(self):
        return [start.job for start in self.engine.starts]
