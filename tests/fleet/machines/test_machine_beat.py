"""The card of a machine renews the leases of its runs: the files between a worker and its runs, and what each asks for.

What the store must look like at each moment is tried in random order by tests/fleet/test_model.py.
"""

from __future__ import annotations

import threading
import time

import pytest

from stallguard.fleet.machines.keeper import LeaseKeeper
from stallguard.fleet.machines.lease import FENCED
from stallguard.fleet.machines.machine_beat import STATUS_MAX, MachineFiles, MachineLeases, Standing, period
from stallguard.fleet.store import StoreError, joblog
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.orders import RunStatus
from stallguard.fleet.store.records import Holder

LASTS, PATIENCE = 6.0, 60.0
HOLDER = Holder(host="mac", boot="b", pid=1, nonce="n", lasts=LASTS)


class Counting(FolderStore):
    """A store that remembers what is asked."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = []

    def read(self, key):
        self.asked.append(("read", key))
        return super().read(key)

    def replace(self, key, data):
        self.asked.append(("replace", key))
        super().replace(key, data)


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Lab:
    """A run that has a lease and a worker, both on a clock that the test moves."""

    def __init__(self, folder):
        folder.mkdir()
        self.store, self.now, self.cards = Counting(folder), 1000.0, 0
        self.leases = MachineLeases(self.store, "mac", "b", lambda: self.now)
        self.theirs = FolderStore(folder)
        self.tail, _ = joblog.perform(joblog.claim("job", joblog.Tail(), HOLDER, ""), self.theirs)
        self.reads, self.orders = 0, []

    def begin(self):
        """Start the run, and wait until its worker has seen it."""
        self.keeper = LeaseKeeper(
            self.store, "job", self.tail, self.now, LASTS, lambda: self.now, asked=self.read_order,
            machine=MachineFiles(self.store.url, "mac", "b"),
        )  # fmt: skip
        self.keeper.attach(lambda order, why: self.orders.append((order, why)))
        self.keeper.start()
        until(lambda: "job@1" in self.leases.alive())
        self.store.asked.clear()

    def read_order(self):
        self.reads += 1
        return ""

    def card(self, alive=None, *, is_notified=True):
        self.cards += 1
        alive = self.leases.alive() if alive is None else alive
        self.leases.write(b"card %d" % self.cards, alive, is_notified=is_notified)

    def passes(self, seconds):
        self.now += seconds

    def second(self):
        """Let a second pass, in which the run says that it lives."""
        self.now += 1
        until(lambda: [one.at for one in self.leases.alive().values()] == [self.now])


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    made = Lab(tmp_path / "store")
    yield made
    made.keeper.close()
    assert "lease" not in [one.name for one in threading.enumerate()]


@pytest.mark.waits
def test_a_run_beside_a_worker_asks_the_store_for_nothing(lab):
    lab.card()
    lab.begin()
    for _ in range(10):
        for _ in range(int(LASTS / 2)):
            lab.second()
        lab.card()
        until(lambda: lab.keeper._tenure.renewed == lab.now)
    assert {key for _, key in lab.store.asked} == {"workers/mac", "beats/job@1@mac"}
    assert lab.store.asked.count(("replace", "beats/job@1@mac")) == 1
    assert (lab.reads, lab.orders) == (0, [])


def test_a_run_without_a_worker_renews_at_once(lab):
    lab.begin()
    until(lambda: lab.theirs.read("beats/job@1"))
    until(lambda: lab.reads)


def test_a_run_whose_worker_writes_no_card_renews_before_its_training_is_ended(lab):
    lab.card()
    lab.begin()
    lab.second()
    lab.card()
    until(lambda: lab.keeper._tenure.renewed == lab.now)
    for _ in range(int(3 * LASTS)):
        lab.second()
        until(lambda: lab.now - lab.keeper._tenure.renewed < 0.6 * LASTS)
    assert lab.theirs.read("beats/job@1")
    assert lab.orders == []


def test_a_run_looks_at_its_orders_when_its_worker_hears_of_one_and_at_each_card_if_it_hears_of_none(lab):
    lab.card()
    lab.begin()
    lab.card()
    lab.leases.ask("job")
    until(lambda: lab.reads == 1)
    lab.leases.ask("another")
    lab.card(is_notified=False)
    until(lambda: lab.reads == 2)


def test_a_run_that_stood_still_reads_the_log_before_it_believes_a_card(lab):
    lab.card()
    lab.begin()
    lab.card()
    other = Holder(host="box", boot="b", pid=2, nonce="m", lasts=LASTS)
    assert joblog.perform(joblog.claim("job", lab.tail, other, ""), lab.theirs)[1]
    lab.now += LASTS
    lab.card(alive={"job@1"})
    until(lambda: lab.keeper._tenure.state == FENCED)
    assert lab.keeper._tenure.renewed < lab.now
    until(lambda: lab.orders or lab.passes(0.01))
    assert lab.orders[0][0] == "end"
    assert "the lease was taken by box" in lab.orders[0][1]
    until(lambda: not lab.leases.alive())


def test_a_mark_that_comes_late_is_removed_with_one_of_the_next_cards(tmp_path):
    """Its answer was lost, its run has ended since, and the request is done only now."""
    (tmp_path / "store").mkdir()
    store, standing = FolderStore(tmp_path / "store"), Standing("mac")
    joblog.perform(standing.renew((), b"1"), store)
    steps = standing.renew(("job@1",), b"2")
    mark = steps.send(None)
    assert mark == ("replace", "beats/job@1@mac", b"1")
    with pytest.raises(StoreError):
        steps.throw(StoreError("no answer"))
    assert not standing.is_for(("job@1",))
    joblog.perform(standing.renew((), b"3"), store)
    store.replace(mark.key, mark.data)
    assert joblog.perform(standing.renew((), b"4"), store) == frozenset()
    assert store.read(mark.key) is None
    for card in range(20):
        joblog.perform(standing.renew((), b"%d" % card), store)
    assert standing.renew((), b"5").send(None).key == "workers/mac"  # in the end nothing is listed


def test_a_run_that_is_over_or_silent_or_of_another_machine_is_not_alive(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    worker = MachineFiles("file:///s", "mac", "b")
    mine = MachineFiles("file:///s", "mac", "b")
    others = [("file:///other", "mac", "b"), ("file:///s", "box", "b"), ("file:///s", "mac", "earlier")]
    for number, one in enumerate(others):
        MachineFiles(*one).show(f"other-{number}", 1, 120.0, 50.0)
    mine.show("job", 3, 120.0, 50.0)
    mine.show("short", 1, 30.0, 50.0)
    assert set(worker.alive(50.0)) == {"job@3", "short@1"}
    assert period(worker.alive(50.0), 60.0) == 15.0
    assert set(worker.alive(57.0)) == {"job@3"}
    assert worker.alive(58.0) == worker.alive(49.0) == {}
    assert period({}, 60.0) == 60.0
    mine.leave("job")
    assert worker.alive(50.0).keys() == {"short@1"}


def test_what_a_worker_says_counts_for_runs_of_its_store_and_machine_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    run = MachineFiles("file:///s", "mac", "b")
    assert run.renewals() is None
    MachineFiles("file:///s", "mac", "b").tell(1.0, 2.0, {"job@3": 4})
    assert run.renewals().asks == {"job@3": 4}
    assert MachineFiles("file:///other", "mac", "b").renewals() is None
    assert MachineFiles("file:///s", "mac", "later").renewals() is None
    (tmp_path / "fleet" / "renewals").write_bytes(b"{")
    assert run.renewals() is None


def test_the_card_of_a_machine_has_how_its_runs_stand_and_a_run_without_one_hears_so(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    worker, run = MachineFiles("file:///s", "mac", "b"), MachineFiles("file:///s", "mac", "b")
    stands = RunStatus(1, "noon", {"state": "running"})
    assert not run.report("job", 3, stands)  # no worker
    worker.tell(1.0, 2.0, {"other@1": 0})
    assert not run.report("job", 3, stands)  # its card does not stand for this run yet
    worker.tell(3.0, 4.0, {"job@3": 0})
    assert run.report("job", 3, stands)
    assert worker.statuses(["job@3", "other@1"]) == {"job@3": stands}
    assert worker.statuses(["job@4"]) == {}  # of the holder before
    assert MachineFiles("file:///s", "mac", "later").statuses(["job@3"]) == {}
    assert not run.report("job", 3, RunStatus(1, "one", {"state": "x" * STATUS_MAX}))  # the store has it then
    assert worker.statuses(["job@3"]) == {}
    run.report("job", 3, stands)
    run.leave("job")
    assert worker.statuses(["job@3"]) == {}


def test_a_status_that_cannot_be_written_is_not_left_to_the_card(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    worker, run = MachineFiles("file:///s", "mac", "b"), MachineFiles("file:///s", "mac", "b")
    worker.tell(1.0, 2.0, {"job@3": 0})
    assert run.report("job", 3, RunStatus(1, "noon", {"state": "running"}))

    def full(*_given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stallguard.storage.private.write", full)
    assert not run.report("job", 3, RunStatus(1, "one", {"state": "stalled"}))
    assert worker.statuses(["job@3"]) == {}
