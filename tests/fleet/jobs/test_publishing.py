"""The thread that publishes: beside the training, within its cost, and through an outage of the store."""

from __future__ import annotations

import shutil
import time

import pytest

from stallguard.fleet.jobs import publishing
from stallguard.fleet.jobs.generations import Publication
from stallguard.fleet.jobs.publishing import PublishingReports, PublishingThread
from stallguard.fleet.jobs.readable_files import CHUNK, ReadableFiles
from stallguard.fleet.machines.keeper import LeaseKeeper
from stallguard.fleet.store import StoreError, joblog
from stallguard.fleet.store.records import Holder
from stallguard.storage.paths import RunDir
from tests.fleet.jobs.test_generations import save

PATIENCE = 20.0
STANDS = {"state": "running", "incidents": 0}
HOLDER = Holder(host="h", boot="b", pid=1, nonce="n")


class Away:
    """A store that can be taken away, and counts what is asked."""

    def __init__(self, store):
        self.store, self.url, self.is_away = store, store.url, False
        self.asked, self.written = 0, []

    def replace(self, key, data):
        self.written.append(key)
        return self.__getattr__("replace")(key, data)

    def __getattr__(self, name):
        self.asked += 1
        if self.is_away:
            raise StoreError("it is away")
        return getattr(self.store, name)


@pytest.fixture
def store(folder):
    return Away(folder)


@pytest.fixture
def tail(store):
    return joblog.perform(joblog.claim("job", joblog.Tail(), HOLDER, ""), store)[0]


@pytest.fixture
def thread(store, tail, tmp_path, monkeypatch):
    """Return a function that starts the thread for a share of the time, with what it said."""
    monkeypatch.setattr(publishing, "LOOK", 0.05)
    monkeypatch.setattr(publishing, "RETRY", 0.05)
    monkeypatch.setattr(publishing, "LONGEST", 0.1)
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    made = []

    def start(share=1.0, **more):
        said = {"trouble": [], "note": [], "fenced": []}
        reports = PublishingReports(said["trouble"].append, said["note"].append, said["fenced"].append)
        publication = Publication("job", tail.number, tail)
        run = RunDir(tmp_path / "run")
        made.append(PublishingThread(store, "job", publication, run, share, reports, lambda: dict(STANDS), **more))
        made[0].start()
        return made[0], publication, run.checkpoints, said

    yield start
    made[0].close()


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_outage_is_reported_once_and_the_newest_is_published_after_it(thread, store):
    _, publication, checkpoints, said = thread()
    save(checkpoints, "p-1/fit-0001", 1, batch=1)
    until(lambda: publication.tail.newest == 2)
    store.is_away = True
    for number in range(2, 6):
        save(checkpoints, "p-1/fit-0001", number, batch=number)
        until(lambda enough=store.asked + 2: store.asked > enough)
    store.is_away = False
    until(lambda: publication.tail.generation.position.batch == 5)
    assert publication.tail.slot == 3  # those in between were skipped
    assert len(said["trouble"]) == 1
    until(lambda: any("again" in text for text in said["note"]))  # said after it is published


def test_publishing_pauses_for_as_long_as_its_cost_allows(thread, monkeypatch):
    used = iter(range(0, 1000, 2))
    monkeypatch.setattr(publishing.time, "process_time", lambda: next(used))
    _, publication, checkpoints, _ = thread(share=0.01)
    save(checkpoints, "p-1/fit-0001", 1, batch=1)
    time.sleep(0.5)
    save(checkpoints, "p-1/fit-0001", 2, batch=2)
    time.sleep(0.5)
    assert publication.tail.slot <= 2  # 2 s of processor time: the next look is 200 s later


def test_the_end_of_a_run_publishes_what_is_newest_and_its_outcome(thread, store):
    made, _, checkpoints, _ = thread()
    save(checkpoints, "p-1/fit-0001", 1, batch=1)
    assert made.conclude(0, "done", PATIENCE) == ""
    tail = joblog.perform(joblog.read_end("job"), store)
    assert (tail.generation.position.batch, tail.outcome.code) == (1, 0)


def test_the_end_of_a_run_does_not_wait_for_ever_for_a_store(thread, store):
    made, *_ = thread()
    store.is_away = True
    began = time.monotonic()
    assert "away" in made.conclude(0, "done", 1.0)
    assert time.monotonic() - began < PATIENCE


def test_a_run_directory_that_is_gone_ends_nothing(thread, tmp_path):
    made, _, checkpoints, said = thread()
    save(checkpoints, "p-1/fit-0001", 1, batch=1)
    shutil.rmtree(tmp_path / "run")
    time.sleep(0.3)
    assert said["fenced"] == []
    assert made.conclude(0, "done", 5.0) == ""


@pytest.fixture
def keeper(store, tail):
    made = []

    def start(**options):
        orders = []
        made.append(LeaseKeeper(store, "job", tail, time.monotonic(), 1.5, time.monotonic, **options))
        made[0].attach(lambda order, why: orders.append((order, why)))
        made[0].start()
        return orders

    yield start
    made[0].close()


def test_a_holder_that_cannot_renew_gives_each_order_once(keeper, store):
    orders = keeper()
    until(lambda: store.read("beats/job@1") not in (None, b"1"))
    assert orders == []
    store.is_away = True
    until(lambda: len(orders) >= 3)
    assert [order for order, _ in orders] == ["end", "term", "kill"]
    assert "cannot be renewed (it is away)" in orders[0][1]


@pytest.mark.waits
def test_a_holder_that_continues_through_an_outage_still_obeys_a_later_claim(keeper, store, tail):
    orders = keeper(ends_if_away=False)
    store.is_away = True
    time.sleep(2.0)
    assert orders == []
    store.is_away = False
    joblog.perform(joblog.claim("job", tail, HOLDER, ""), store)
    until(lambda: len(orders) >= 3)
    assert "the lease was taken by h" in orders[0][1]


def test_a_holder_ends_its_training_if_a_person_stopped_the_job(keeper, store):
    said = iter(["", StoreError("away")])

    def asked():
        now = next(said, "you asked (ann@mini)")
        if isinstance(now, StoreError):
            raise now
        return now

    orders = keeper(asked=asked)
    until(lambda: len(orders) >= 2)  # again with each renewal: a training that stalls right now does not end
    assert set(orders) == {("end", "you asked (ann@mini)")}


def test_what_people_read_is_in_the_store_while_the_run_lives(thread, store, tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "SHOW", 0.05)
    made, *_ = thread()
    (tmp_path / "run" / "output.log").write_text("begins")
    until(lambda: store.store.read("jobs/job/runs/1/parts/1/0") == b"begins")
    assert b'"running"' in store.store.read("jobs/job/runs/1/status")
    assert made.conclude(0, "done", PATIENCE) == ""


def test_a_state_that_cannot_be_made_does_not_end_the_publishing_of_checkpoints(thread, monkeypatch):
    made, publication, checkpoints, said = thread()
    made._status = lambda: 1 / 0
    monkeypatch.setattr(publishing, "SHOW", 0.0)
    until(lambda: any("division" in text for text in said["note"]))
    save(checkpoints, "p-1/fit-0001", 1, batch=1)
    until(lambda: publication.tail.newest == 2)
    assert sum("division" in text for text in said["note"]) == 1


def test_the_renewals_of_a_run_that_is_over_are_listed_no_more(store):
    holder = Holder(host="mini", boot="b", pid=1, nonce="n")
    tail, _ = joblog.perform(joblog.claim("other", joblog.Tail(), holder, "noon"), store)
    made = LeaseKeeper(store, "other", tail, time.monotonic(), 1.5, time.monotonic)
    made.start()
    until(lambda: store.read("beats/other@1"))
    made.close()
    assert store.read("beats/other@1") is None


class Worker:
    """The worker of this machine: its card has how a run stands."""

    def __init__(self):
        self.told = []

    def report(self, job, number, status):
        self.told.append((job, number, status.status["state"]))
        return True


def test_a_run_that_goes_well_asks_the_store_for_nothing_until_there_is_a_reason(thread, store, tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "SHOW", 0.05)
    monkeypatch.setitem(STANDS, "state", "running")
    monkeypatch.setitem(STANDS, "incidents", 0)
    worker, output = Worker(), tmp_path / "run" / "output.log"
    output.write_text("begins")
    made, publication, checkpoints, _ = thread(machine=worker)

    def put(text):
        until(lambda: store.store.read("jobs/job/runs/1/parts/1/0") == text.encode())
        until(lambda: store.written[-1] == "jobs/job/runs/1/index")
        return len(store.written)

    written, text = put("begins"), "begins"
    reasons = {
        "a reader": made.want,
        "another state": lambda: STANDS.update(state="stalled"),
        "an incident": lambda: STANDS.update(incidents=1),
        "a checkpoint": lambda: save(checkpoints, "p-1/fit-0001", 1, batch=1),
    }
    for reason, give in reasons.items():
        text += f", {reason}"
        output.write_text(text)
        told = len(worker.told)
        until(lambda: len(worker.told) > told + 5)  # noqa: B023 - of this turn
        assert len(store.written) == written, reason
        give()
        written = put(text)
    assert worker.told[-1] == ("job", 1, "stalled")
    assert "jobs/job/runs/1/status" not in store.written
    made.want()  # nothing is new: a reader that waits sees so from the index
    until(lambda: len(store.written) == written + 1)
    assert publication.tail.newest == 2


def test_a_wish_of_a_reader_is_not_lost_while_the_store_is_away(thread, store, tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "SHOW", 0.05)
    output = tmp_path / "run" / "output.log"
    output.write_text("begins")
    made, *_ = thread(machine=Worker())
    until(lambda: "jobs/job/runs/1/index" in store.written)
    store.is_away = True
    output.write_text("begins, goes on")
    asked = store.asked
    made.want()
    until(lambda: store.asked > asked)
    store.is_away = False
    until(lambda: store.store.read("jobs/job/runs/1/parts/1/0") == b"begins, goes on")


def test_what_is_too_much_for_one_look_follows_with_the_next(thread, store, tmp_path, monkeypatch):
    monkeypatch.setattr(publishing, "SHOW", 0.05)
    monkeypatch.setattr(ReadableFiles.renew, "__defaults__", (2,))
    (tmp_path / "run" / "output.log").write_bytes(b"x" * (5 * CHUNK))
    thread(machine=Worker())
    until(lambda: store.store.read("jobs/job/runs/1/parts/1/4"))
