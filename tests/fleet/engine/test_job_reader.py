"""The dispatcher with a sweep of hundreds of jobs in a bucket, which answers in 30 ms."""

from __future__ import annotations

import threading
import time

import pytest

from stallguard.fleet.store import orders
from stallguard.fleet.store.orders import Stop
from tests.fleet.dispatching import LASTS, MAC, OWN, Fleet
from tests.fleet.memory import MemoryStore

ANSWERS, JOBS = 0.03, 300


class Slow:
    """A store whose answers take time of the test's clock."""

    def __init__(self, fleet):
        self.fleet, self.store = fleet, fleet.store

    def __getattr__(self, name):
        self.fleet.now += ANSWERS
        return getattr(self.store, name)


@pytest.mark.costly
def test_a_machine_that_vanishes_is_noticed_in_time_while_hundreds_of_jobs_wait():
    fleet = Fleet(MemoryStore())
    fleet.submit("held")
    for number in range(JOBS):
        fleet.submit(f"waits-{number:03}")
    fleet.claim("mac", "held")
    fleet.dispatcher._store = fleet.dispatcher._reader._store = Slow(fleet)
    for _ in range(300):
        fleet.now += 1
        fleet.renew("held")
        fleet.dispatcher.turn()
    fleet.renew("held")
    assert fleet.cordon("mac") is None
    silent_since = fleet.now
    fleet.engine.connected = [one for one in fleet.engine.connected if one != MAC]
    while fleet.cordon("mac") is None:
        fleet.now += 1
        fleet.dispatcher.turn()
        assert fleet.now < silent_since + LASTS + 15  # it was 110 s and more if each job was read every 5 s


class Counting:
    """A store that remembers the keys that it was asked for; `stale`: it lists what it listed first."""

    def __init__(self, store, *, stale=False):
        self.store, self.stale, self.asked, self.first = store, stale, [], {}

    def __getattr__(self, name):
        def ask(key, *given):
            self.asked.append(key)
            if self.stale and name == "versions":
                return self.first.setdefault(key, self.store.versions(key))
            return getattr(self.store, name)(key, *given)

        return ask


def held(tmp_path, store):
    """Return a fleet with a job that is trained, of which the scheduler's store is `store` of the real one."""
    fleet = Fleet(tmp_path / "store")
    fleet.submit("held")
    fleet.turns(5)
    fleet.claim("mac", "held")
    fleet.turns(10)
    for number in range(50):
        fleet.submit(f"waits-{number}")
    fleet.dispatcher._store = fleet.dispatcher._reader._store = counting = store(fleet.store)
    fleet.turns(5)
    counting.asked.clear()
    return fleet, counting


@pytest.mark.costly
def test_a_minute_of_a_job_that_is_trained_costs_a_listing_every_few_seconds(tmp_path):
    fleet, counting = held(tmp_path, Counting)
    for _ in range(12):
        fleet.renew("held")
        fleet.turns(5)
    assert fleet.cordon("mac") is None
    assert len([key for key in counting.asked if "held" in key]) <= 4
    assert len(counting.asked) < 150


@pytest.mark.costly
def test_a_job_for_which_the_card_of_its_machine_stands_costs_no_more_and_is_missed_in_time(tmp_path):
    fleet, counting = held(tmp_path, Counting)
    fleet.store.replace("beats/held@1@mac", b"1")
    for number in range(40):
        if not number % 6:  # each 30 s, half of the lease
            fleet.store.replace(orders.WorkerCard.place(host="mac"), b"%d" % number)
        fleet.turns(5)
    assert fleet.cordon("mac") is None
    assert len([key for key in counting.asked if "held" in key]) <= 12
    fleet.store.remove("beats/held@1@mac")  # its run is dead, its worker lives
    silent_since = fleet.now
    while fleet.cordon("mac") is None:
        fleet.store.replace(orders.WorkerCard.place(host="mac"), b"%d" % fleet.now)
        fleet.turns(5)
        assert fleet.now <= silent_since + LASTS + 15


@pytest.mark.costly
def test_a_listing_that_shows_old_renewals_makes_no_holder_silent(tmp_path):
    fleet, _ = held(tmp_path, lambda store: Counting(store, stale=True))
    for _ in range(40):
        fleet.renew("held")
        fleet.turns(10)
    assert fleet.cordon("mac") is None
    fleet.turns(int(LASTS) + 30)
    assert fleet.cordon("mac").lifts_itself


def test_a_job_that_was_stopped_or_begun_by_hand_since_it_was_read_is_not_started(tmp_path):
    fleet = Fleet(tmp_path / "store")
    fleet.engine.connected = []
    for job in ("by-hand", "free", "stopped"):
        fleet.submit(job)
    for number in range(50):
        fleet.submit(f"waits-{number}", priority=-1)
    fleet.turns(10)
    fleet.store.replace(
        orders.Stop.place(job="stopped"), orders.encode(Stop(schema=1, job="stopped"), OWN)
    )  # whose note is lost
    fleet.claim("box", "by-hand")
    fleet.engine.connected = [MAC]
    fleet.turns(5)
    assert fleet.started == ["free"]


def test_a_listing_of_many_names_holds_up_no_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("stallguard.fleet.engine.job_reader.PAGE", 1)
    fleet = Fleet(tmp_path / "store")
    for number in range(8):
        fleet.submit(f"a-{number}")
    fleet.turns(3)
    names, may_answer = fleet.store.names, threading.Event()

    def slow(folder):
        assert folder != "jobs" or may_answer.wait(30)
        return names(folder)

    monkeypatch.setattr(fleet.store, "names", slow)
    fleet.submit("later", priority=9)
    for note in names(orders.NEWS):
        fleet.store.remove(f"{orders.NEWS}/{note}")  # it is found by that listing alone
    fleet.turns(60)
    may_answer.set()
    for _ in range(200):
        time.sleep(0.02)
        fleet.dispatcher.turn()
        if "later" in fleet.dispatcher._followed:
            break
    assert "later" in fleet.dispatcher._followed


def test_the_renewals_of_holders_that_were_killed_or_are_over_are_listed_no_more(tmp_path):
    fleet = Fleet(tmp_path / "store")
    fleet.submit("job")
    fleet.turns(3)
    fleet.claim("mac")
    fleet.turns(10)
    fleet.claim("box")  # as if the first had been silent
    assert set(fleet.store.names("beats")) == {"job@1", "job@2"}
    fleet.turns(20)
    assert fleet.store.names("beats") == ["job@2"]
    fleet.end(0)
    fleet.turns(5)
    assert fleet.store.names("beats") == []
