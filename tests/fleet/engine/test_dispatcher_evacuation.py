"""The dispatcher on a real store: machines that vanish or are at fault, schedulers and stores that go away."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.errors import GAVE_UP
from stallguard.fleet.jobs.dispatch import Placed
from stallguard.fleet.machines import machine_list
from stallguard.fleet.store import StoreError, joblog, orders, records
from stallguard.fleet.store.joblog import Tail, perform
from stallguard.fleet.store.orders import Cordon
from stallguard.fleet.store.records import Claim, Holder, HolderEnd
from tests.fleet.dispatching import LASTS, MAC, OWN, Fleet


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path / "store")


# ---- machines that vanish or are at fault ---------------------------------------------------------------------------


def test_a_silent_holder_is_cordoned_after_its_lease_and_the_job_goes_on_elsewhere_at_once(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.publish(7)
    for _ in range(3):  # it renews
        fleet.turns(10)
        fleet.renew()
    fleet.turns(int(LASTS) - 1)
    assert (fleet.started, fleet.cordon("mac")) == (["job"], None)
    fleet.turns(6)
    _, start = fleet.engine.starts
    assert start.address == "tls://box"
    assert start.quiet == perform(joblog.look("job", fleet.tail()), fleet.store)[1]
    cordon = fleet.cordon("mac")
    assert (cordon.job, cordon.number, cordon.lifts_itself) == ("job", 1, True)
    assert cordon.why == "silent for 1 min, in job job"
    assert "job job starts; it goes on from the checkpoint that was published at noon" in fleet.said


def test_what_vanished_is_cordoned_once_and_its_machine_retired(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.turns(3 * int(LASTS))
    assert fleet.started == ["job", "job"]
    assert fleet.engine.retired.count("tls://mac") == 1
    assert len([line for line in fleet.said if "takes no more jobs" in line]) == 1


def test_a_machine_at_fault_is_cordoned_and_the_job_goes_on_elsewhere(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.end(GAVE_UP, fault="waits for the GPU")
    fleet.turns(5)
    cordon = fleet.cordon("mac")
    assert (cordon.why, cordon.number, cordon.lifts_itself) == ("waits for the GPU, in job job", 1, False)
    assert fleet.engine.starts[-1].address == "tls://box"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_machine_that_a_person_allows_again_is_not_cordoned_again_for_the_same(fleet, restarted):
    fleet.engine.connected = [MAC]  # no other machine: the job stays at that incident
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.end(GAVE_UP, fault="waits for the GPU")
    fleet.turns(5)
    assert not fleet.cordon("mac").is_lifted
    assert fleet.started == ["job"]
    machine_list.uncordon(fleet.store, OWN, "mac")
    if restarted:
        fleet.begin()
    fleet.engine.retired, fleet.engine.connected = [], [MAC._replace(worker="w3")]
    fleet.turns(5)
    assert fleet.cordon("mac").is_lifted
    assert fleet.started[-1:] == ["job"]
    fleet.claim("mac")
    fleet.end(GAVE_UP, fault="waits for the GPU")
    fleet.turns(5)
    assert (fleet.cordon("mac").is_lifted, fleet.cordon("mac").number) == (False, 2)  # another incident


def test_a_machine_that_vanished_and_is_there_again_can_take_the_job(fleet):
    fleet.engine.connected = [MAC]
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.engine.connected = []
    fleet.turns(int(LASTS) + 15)
    lifted = replace(fleet.cordon("mac"), is_lifted=True)  # as its worker does when it is there
    fleet.store.replace(orders.Cordon.place(host="mac"), orders.encode(lifted, OWN))
    fleet.engine.connected = [MAC._replace(worker="w3", address="tls://mac:2")]
    fleet.turns(10)
    assert fleet.engine.starts[-1].address == "tls://mac:2"
    assert fleet.cordon("mac").is_lifted


def test_a_cordon_of_a_person_is_not_replaced_by_one_that_lifts_itself(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    mine = Cordon(schema=1, host="mac", at="", why="its fan is loud")
    fleet.store.replace(orders.Cordon.place(host="mac"), orders.encode(mine, OWN))
    fleet.turns(2 * int(LASTS))
    assert fleet.cordon("mac") == replace(mine, signer="hub")
    assert fleet.engine.starts[-1].address == "tls://box"


def test_a_damaged_cordon_keeps_its_machine_out(fleet):
    fleet.store.replace(orders.Cordon.place(host="mac"), b"{")
    fleet.submit()
    fleet.turns()
    assert fleet.engine.starts[0].address == "tls://box"
    assert fleet.engine.retired == ["tls://mac"]


# ---- the scheduler and the store go away ----------------------------------------------------------------------------


def test_a_scheduler_that_starts_again_does_not_start_what_is_held(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.begin()
    for _ in range(30):
        fleet.turns(10)
        fleet.renew()
    assert fleet.engine.starts == []
    assert fleet.said[-1] == "job job waits: mac trains it"
    fleet.end(0)
    fleet.turns(6)
    assert fleet.said[-1] == "job job: it is finished"


def test_a_scheduler_that_starts_again_watches_a_silent_holder_itself_for_a_whole_lease(fleet):
    fleet.submit()
    fleet.claim("mac")
    fleet.turns(int(LASTS) - 5)
    fleet.begin()
    fleet.turns(int(LASTS) - 5)
    assert fleet.engine.starts == []
    fleet.turns(12)
    assert fleet.engine.starts[0].address == "tls://box"


def test_a_connection_that_is_lost_starts_nothing_while_the_run_lives(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.engine.states["job"] = Placed(True, "the connection to its machine was lost")
    for _ in range(20):
        fleet.turns(10)
        fleet.renew()
    assert fleet.started == ["job"]


class Failing:
    """A store whose operations of one kind fail while `fails` is set."""

    def __init__(self, store, kind):
        self.store, self.kind, self.fails = store, kind, True

    def __getattr__(self, name):
        if self.fails and name == self.kind:
            raise StoreError("it is away")
        return getattr(self.store, name)


def test_a_store_that_is_away_loses_no_job_and_no_time_of_a_live_holder_counts(fleet):
    fleet.submit()
    fleet.submit("next")
    fleet.turns()
    fleet.claim("mac")
    fleet.turns(2)
    fleet.folder.rename(fleet.folder.with_name("away"))
    for _ in range(3600):
        fleet.now += 1
        with pytest.raises(StoreError):
            fleet.dispatcher.turn()
    fleet.folder.with_name("away").rename(fleet.folder)
    fleet.renew()
    fleet.turns(20)
    assert sorted(fleet.started) == ["job", "next"]
    assert fleet.cordon("mac") is None


def test_a_cordon_that_the_store_did_not_take_is_written_when_it_is_back(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.end(GAVE_UP, fault="waits for the GPU")
    failing = fleet.dispatcher._store = Failing(fleet.store, "replace")
    for _ in range(10):
        fleet.now += 1
        with pytest.raises(StoreError):
            fleet.dispatcher.turn()
    assert fleet.started == ["job"]  # not given to the machine that is at fault
    failing.fails = False
    fleet.turns(5)
    assert fleet.cordon("mac").why == "waits for the GPU, in job job"
    assert fleet.engine.starts[-1].address == "tls://box"


def test_a_log_with_nothing_in_it_is_a_new_job(fleet):
    fleet.submit()
    assert fleet.tail() == Tail()
    fleet.turns()
    assert fleet.started == ["job"]


def test_a_job_whose_keys_cannot_be_read_does_not_hold_up_the_others(fleet, tmp_path):
    fleet.submit("broken")
    fleet.turns()
    (tmp_path / "store" / "jobs" / "broken" / "stop").symlink_to("/nowhere")
    fleet.submit("whole")
    fleet.turns(20)
    assert "whole" in fleet.started
    assert sum("broken" in line and "cannot be read" in line for line in fleet.said) == 1


def test_a_holder_whose_name_leads_out_of_the_store_has_nothing_written_there(fleet, tmp_path):
    fleet.submit()
    entry = Claim(number=1, holder=Holder(host="../../victim", boot="b", pid=1, nonce="n"))
    fleet.store.create(records.slot_key("job", 1), records.encode(entry))
    end = HolderEnd(number=1, claim=1, run="r", code=1, why="", fault="its GPU hangs")
    fleet.store.create(records.slot_key("job", 2), records.encode(end))
    fleet.turns(5)
    assert not (tmp_path / "victim").exists()
    assert fleet.cordon("mac") is None
