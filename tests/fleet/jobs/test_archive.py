"""Jobs that are over: what is read of them, and what is lost if a scheduler is killed, or the store fails."""

from __future__ import annotations

import contextlib

import pytest

from stallguard.fleet.jobs import archive, job_table
from stallguard.fleet.store import StoreError, orders
from stallguard.fleet.store.orders import Stop
from tests import examples
from tests.fleet.dispatching import OWN, Fleet
from tests.fleet.memory import MemoryStore


class Counting:
    """A store that remembers what it was asked."""

    def __init__(self, store):
        self.store, self.asked = store, []

    def __getattr__(self, name):
        def ask(key, *given):
            self.asked.append((name, key))
            return getattr(self.store, name)(key, *given)

        return ask


class Failing(Counting):
    """A store that fails once, at the request with a number; `done`: that request is done all the same."""

    def __init__(self, store, number, *, done):
        super().__init__(store)
        self.number, self.done = number, done

    def __getattr__(self, name):
        def ask(key, *given):
            self.asked.append((name, key))
            is_due = len(self.asked) == self.number
            answer = getattr(self.store, name)(key, *given) if not is_due or self.done else None
            if is_due:
                raise StoreError("the network is away")
            return answer

        return ask


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path / "store")


def finish(fleet, job, code=0):
    fleet.submit(job)
    fleet.turns(4)
    fleet.claim("mac", job)
    fleet.end(code, job)
    fleet.turns(4)


def test_a_scheduler_that_starts_reads_nothing_of_a_job_that_is_over(fleet):
    for job in ("a", "b"):
        finish(fleet, job)
    fleet.turns(70)
    assert archive.names(fleet.store) == {"a", "b"}
    fleet.submit("c")
    fleet.begin()
    fleet.dispatcher._store = fleet.dispatcher._reader._store = counting = Counting(fleet.store)
    fleet.turns(70)
    assert fleet.started == ["c"]
    assert [key for _, key in counting.asked if key.startswith(("jobs/a", "jobs/b"))] == []


def test_a_job_that_is_over_looks_in_the_archive_as_its_log_says(fleet):
    finish(fleet, "a")
    finish(fleet, "b", code=3)
    fleet.submit("c")
    fleet.store.replace(orders.Stop.place(job="c"), orders.encode(Stop(schema=1, job="c", by="ann"), OWN))
    fleet.turns(70)
    read = {row.job: row for row in job_table.read(fleet.store, OWN).jobs}
    assert archive.rows(fleet.store) == read
    assert [read[job].state for job in "abc"] == ["finished", "failed", "stopped"]
    assert archive.fleet(fleet.store, OWN).jobs == [read[job] for job in "abc"]
    assert archive.fleet(fleet.store, OWN, is_alive=True).jobs == []


def test_a_job_that_is_begun_again_by_hand_is_shown_as_it_stands(fleet):
    finish(fleet, "a", code=3)
    fleet.turns(70)
    assert archive.fleet(fleet.store, OWN).jobs[0].state == "failed"
    fleet.claim("box", "a")
    (row,) = archive.fleet(fleet.store, OWN, is_alive=True).jobs
    assert (row.state, row.machine, row.number) == ("running", "box", 2)


def test_an_old_submission_that_is_put_back_starts_nothing_also_without_the_archive(fleet):
    finish(fleet, "a")
    fleet.turns(70)
    old = fleet.store.read(orders.Submission.place(job="a"))
    for remove in ("archive", "nothing"):
        fleet.store.remove(remove)
        fleet.store.remove(orders.Submission.place(job="a"))
        fleet.store.create(orders.Submission.place(job="a"), old)
        fleet.store.replace(orders.news_key("a"), b"")
        fleet.begin()
        fleet.turns(70)
        assert fleet.started == []


@pytest.mark.costly
@pytest.mark.parametrize("done", [False, True])
def test_a_store_that_fails_at_any_request_loses_no_job_and_starts_none_twice(done):
    requests = None
    number = 0
    while requests is None or number < requests:
        number += examples.of(1, fast=4)
        fleet = Fleet(MemoryStore())
        finish(fleet, "before")
        fleet.submit("after")
        fleet.begin()
        failing = Failing(fleet.store, number, done=done)
        fleet.dispatcher._store = fleet.dispatcher._reader._store = failing
        for second in range(100):
            fleet.now += 1
            with contextlib.suppress(StoreError):
                fleet.dispatcher.turn()
            if second == 20:
                fleet.claim("mac", "after")
                fleet.end(0, "after")
        assert fleet.started == ["after"], failing.asked[number - 1]
        fleet.begin()
        fleet.turns(70)
        assert fleet.started == []
        assert archive.names(fleet.store) == {"before", "after"}, failing.asked[number - 1]
        assert fleet.store.names(orders.NEWS) == []
        requests = len(failing.asked)


def test_a_damaged_day_is_made_again_from_the_logs(fleet):
    finish(fleet, "a")
    (day,) = fleet.store.names("archive")
    fleet.store.replace(f"archive/{day}", b"\xff[")
    assert [row.state for row in archive.fleet(fleet.store, OWN).jobs] == ["finished"]
    fleet.begin()
    fleet.turns(70)
    assert fleet.started == []
    assert archive.names(fleet.store) == {"a"}


def test_many_jobs_are_shown_from_one_table_with_what_was_ordered_since(fleet, monkeypatch):
    monkeypatch.setattr("stallguard.fleet.jobs.archive.MANY", 3)
    for job in ("a", "b", "c", "d"):
        fleet.submit(job)
    fleet.turns(20)
    fleet.claim("mac", "a")
    fleet.turns(20)
    counting = Counting(fleet.store)
    monkeypatch.setattr(archive, "SILENT", float("inf"))  # the scheduler of this test has a clock of its own
    rows = {row.job: row for row in archive.fleet(counting, OWN, is_alive=True).jobs}
    assert {job: row.state for job, row in rows.items()} == {
        "a": "running", "b": "waiting", "c": "waiting", "d": "waiting",
    }  # fmt: skip
    assert rows["c"].why == "no machine that can take it has room"
    assert len(counting.asked) <= 8
    fleet.submit("e")
    fleet.claim("box", "by-hand")
    shown = {row.job: row.state for row in archive.fleet(fleet.store, OWN, is_alive=True).jobs}
    assert shown == {job: row.state for job, row in rows.items()} | {"e": "waiting", "by-hand": "running"}
    assert archive.fleet(fleet.store, OWN).jobs != []
