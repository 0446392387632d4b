"""The end of a run that its store did not take is published later, once, unless another machine has the job by then."""

from __future__ import annotations

import random

import pytest

from stallguard.fleet.jobs import publishing
from stallguard.fleet.jobs.publishing import KeptEnd
from stallguard.fleet.store import StoreError, joblog, records
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.joblog import perform
from stallguard.fleet.store.records import Holder, HolderEnd
from tests import examples
from tests.fleet.memory import MemoryStore

SCHEDULES, STEPS = examples.of(1000, fast=100), 12


class Troubled:
    """A store that can be read and not written to, or that does what it is asked and loses the answer."""

    CHANGES = ("create", "replace", "put", "remove")

    def __init__(self, store):
        self.store, self.is_read_only, self.loses = store, False, lambda: False

    def __getattr__(self, name):
        real = getattr(self.store, name)
        if name not in self.CHANGES:
            return real

        def change(*words):
            if self.is_read_only:
                raise StoreError("Read-only file system")
            found = real(*words)
            if self.loses():
                raise StoreError("the answer is lost")
            return found

        return change


@pytest.fixture
def troubled(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(publishing, "PATIENCE", 0.0)  # one try
    (tmp_path / "state" / "runs" / "r1").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    return Troubled(FolderStore(tmp_path / "store"))


def claimed(store, job="job", host="mac"):
    tail = perform(joblog.read_end(job), store)
    tail, won = perform(joblog.claim(job, tail, Holder(host=host, boot="b", pid=1, nonce=host), ""), store)
    assert won
    return tail.number


def kept_end(store, number, job="job"):
    facts = {"script_code": 3, "reason": "", "fault": "", "final": False}
    end = KeptEnd(publishing.SCHEMA, store.url, job, "r1", number, 3, "the script failed", facts)
    publishing.keep(end)
    return end


def outcomes(store, job="job"):
    names = sorted(store.store.names(f"jobs/{job}/log"))
    entries = [records.decode(store.store.read(f"jobs/{job}/log/{name}")) for name in names]
    return [one for one in entries if isinstance(one, HolderEnd)]


def tried(end, store):
    try:
        return publishing.publish(end, store, None)
    except StoreError as error:
        return str(error)


def test_an_end_is_published_once_as_soon_as_the_store_takes_it(troubled):
    end = kept_end(troubled, claimed(troubled))
    troubled.is_read_only = True
    assert "Read-only" in tried(end, troubled)
    assert publishing.kept(troubled.url) == [end]
    troubled.is_read_only = False
    assert tried(end, troubled) == ""
    (found,) = outcomes(troubled)
    assert (found.code, found.script_code, found.why, found.run) == (3, 3, "the script failed", "r1")
    assert publishing.kept(troubled.url) == []
    assert tried(end, troubled) == ""  # by another process, which had read it before
    assert len(outcomes(troubled)) == 1


def test_an_end_is_of_no_use_after_another_machine_has_taken_the_job(troubled):
    end = kept_end(troubled, claimed(troubled))
    claimed(troubled, host="box")
    assert tried(end, troubled) == ""
    assert outcomes(troubled) == []
    assert publishing.kept(troubled.url) == []


def test_an_end_stays_while_the_log_lacks_the_claim_of_its_run(troubled):
    end = kept_end(troubled, claimed(troubled) + 1)
    assert "lacks the claim" in tried(end, troubled)
    assert publishing.kept(troubled.url) == [end]


def test_ends_are_those_of_a_store_and_of_a_job(troubled):
    end = kept_end(troubled, 1)
    assert publishing.kept(troubled.url, "job") == [end]
    assert publishing.kept(troubled.url, "other") == publishing.kept("file:///other") == []


def test_a_damaged_file_hides_no_other_end(troubled, tmp_path):
    end = kept_end(troubled, 1)
    (tmp_path / "state" / "fleet" / "kept" / "a.json").write_text("{")
    assert publishing.kept(troubled.url) == [end]


def test_in_random_schedules_no_end_is_lost_and_none_is_published_twice(troubled):
    troubled = Troubled(MemoryStore())
    for seed in range(SCHEDULES):
        dice, job = random.Random(seed), f"job-{seed}"
        troubled.is_read_only, troubled.loses = False, lambda: False
        number, overtaken = claimed(troubled, job), 0
        end = kept_end(troubled, number, job)
        troubled.loses = lambda dice=dice: dice.random() < 0.3
        for _ in range(STEPS):
            match dice.choice(("outage", "back", "try", "try", "claim")):
                case "outage":
                    troubled.is_read_only = True
                case "back":
                    troubled.is_read_only = False
                case "try":
                    tried(end, troubled)
                case "claim" if dice.random() < 0.2 and not outcomes(troubled, job):
                    claimed(troubled.store, job, "box")  # another machine, whose store answers
                    overtaken += 1
        troubled.is_read_only, troubled.loses = False, lambda: False
        assert tried(end, troubled) == ""
        mine = [one for one in outcomes(troubled, job) if one.number == number]
        assert len(mine) <= 1, seed
        assert mine or overtaken, seed
        assert publishing.kept(troubled.url, job) == []
        assert perform(joblog.read_end(job), troubled).number == number + overtaken
