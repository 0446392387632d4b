"""The dispatcher on a real store, with an engine of this test and a clock that the test moves."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.errors import GAVE_UP, STOPPED_ON_TIME
from stallguard.fleet import joblog, orders
from stallguard.fleet.folder_store import FolderStore
from stallguard.fleet.joblog import Tail, perform
from stallguard.fleet.orders import Code, Cordon, Refusal, Stop, Submission
from stallguard.fleet.records import Claim, Generation, Holder, Outcome, Position, StoredFile
from stallguard.fleet.store import StoreError
from stallguard.pool import machines
from stallguard.pool.dispatch import Machine
from stallguard.pool.dispatcher import Deps, Dispatcher, rank
from stallguard.pool.engine import UNKNOWN, Placed

TOKEN, OTHER = "a" * 64, "b" * 64
LASTS = 60.0
MAC = Machine("mac", "w1", "tls://mac", {"slots": 1})
BOX = Machine("box", "w2", "tls://box", {"slots": 1})


class TestEngine:
    """An engine that starts nothing: the test says what its machines do."""

    __test__ = False

    def __init__(self):
        self.connected = [MAC, BOX]
        self.starts, self.forgotten, self.retired = [], [], []
        self.states = {}

    def machines(self):
        return [one for one in self.connected if one.address not in self.retired]

    def start(self, start):
        self.starts.append(start)
        self.states[start.job] = Placed(False)

    def placed(self, job):
        return self.states.get(job, Placed(True, UNKNOWN))

    def forget(self, job):
        self.forgotten.append(job)
        self.states.pop(job, None)

    def retire(self, address):
        self.retired.append(address)


class Fleet:
    """A store with jobs, and a dispatcher that can be started again."""

    def __init__(self, folder):
        folder.mkdir()
        self.folder, self.store = folder, FolderStore(folder)
        self.now, self.said = 1000.0, []
        self.begin()

    def begin(self):
        """Start a scheduler: it knows nothing of the one before."""
        self.engine = TestEngine()
        deps = Deps(lambda: self.now, lambda: "2026-06-10T12:00:00Z", self.said.append)
        self.dispatcher = Dispatcher(self.store, TOKEN, self.engine, deps)

    def turns(self, seconds=0):
        """Let a time pass, with a turn each second and one at once."""
        self.dispatcher.turn()
        for _ in range(seconds):
            self.now += 1
            self.dispatcher.turn()

    def submit(self, job="job", *, token=TOKEN, **more):
        code = Code(digest="0" * 64, size=1)
        made = Submission(schema=1, job=job, words=("t.py",), options=(), code=code, **more)
        assert self.store.create(orders.submission_key(job), orders.encode_submission(made, token))

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
        perform(joblog.renew(job, tail, tail.number, int(self.now * 1000)), self.store)

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
        entry = Outcome(number=tail.number, claim=0, run="r", code=code, why="", fault=fault)
        perform(joblog.append(job, tail, tail.number, entry), self.store)
        self.engine.states[job] = Placed(True)

    def cordon(self, host):
        data = self.store.read(orders.cordon_key(host))
        return orders.decode(data, Cordon) if data else None

    @property
    def started(self):
        return [start.job for start in self.engine.starts]


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path / "store")


# ---- which jobs start -----------------------------------------------------------------------------------------------


def test_a_job_is_found_and_started_once(fleet):
    fleet.turns(3)
    fleet.submit(needs={"memory": 0.0}, priority=4)
    fleet.engine.connected = [replace_resources(MAC, memory=1.0)]
    fleet.turns(20)
    (start,) = fleet.engine.starts
    assert (start.job, start.needs) == ("job", {"slots": 1.0, "memory": 0.0})
    assert (start.addresses, start.quiet) == (("tls://mac",), "")


def replace_resources(machine, **more):
    return machine._replace(resources={**machine.resources, **more})


def test_the_highest_priority_is_given_to_the_engine_first(fleet):
    for job, priority in (("a", 0), ("b", 5), ("c", 5), ("d", -1)):
        fleet.submit(job, priority=priority)
    fleet.turns()
    assert fleet.started == ["b", "c", "a", "d"]
    ranks = [start.priority for start in fleet.engine.starts]
    assert ranks == sorted({*ranks}, reverse=True)  # Dask keeps no order among equal ones


def test_a_job_that_has_begun_goes_on_before_one_of_the_same_priority_begins():
    begun = Tail(claim=Claim(number=1, holder=Holder("mac", "boot", 1, "")))
    assert rank(0, begun, place=9) > rank(0, Tail(), place=1) > rank(0, Tail(), place=2)
    assert rank(1, Tail(), place=9) > rank(0, begun, place=1)


def test_a_job_that_this_fleet_did_not_sign_is_refused_and_that_is_said_once(fleet):
    fleet.submit("alien", token=OTHER)
    fleet.submit("own")
    fleet.turns(30)
    assert fleet.started == ["own"]
    assert [line for line in fleet.said if "alien" in line] == [
        "job alien is refused: its signature is not of this fleet: its token is another, or it was changed"
    ]


def test_a_submission_that_was_copied_to_another_name_is_refused(fleet):
    fleet.submit("own")
    fleet.store.create(orders.submission_key("copy"), fleet.store.read(orders.submission_key("own")))
    fleet.turns(2)
    assert fleet.started == ["own"]


def test_a_job_of_another_engine_and_one_started_by_hand_are_left_alone(fleet):
    fleet.submit("ray", engine=orders.RAY)
    fleet.claim("mac", "by-hand")
    fleet.turns(2 * int(LASTS))
    assert fleet.started == []
    assert fleet.cordon("mac") is None


def test_a_job_waits_for_a_machine_and_says_so_once(fleet):
    fleet.engine.connected = []
    fleet.submit()
    fleet.turns(20)
    assert fleet.said == ["job job waits: no machine is connected"]
    fleet.engine.connected = [BOX]
    fleet.turns(1)
    assert fleet.engine.starts[0].addresses == ("tls://box",)


def test_a_job_that_is_done_is_read_no_more(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.end(0)
    fleet.turns(3)
    assert "job job: it is finished" in fleet.said
    fleet.store.remove("jobs/job/log")
    fleet.turns(30)
    assert fleet.started == ["job"]


def test_what_failed_is_not_started_again_also_by_the_next_scheduler(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.end(1)
    fleet.turns(30)
    fleet.begin()
    fleet.turns(30)
    assert fleet.engine.starts == []
    assert fleet.said.count("job job: it failed: exit code 1") == 2


def test_a_stop_that_is_signed_ends_a_job_and_another_does_not(fleet):
    fleet.submit()
    fleet.store.replace(orders.stop_key("job"), orders.encode_stop(Stop(schema=1, job="job"), OTHER))
    fleet.turns(10)
    assert fleet.started == ["job"]
    fleet.store.replace(orders.stop_key("job"), orders.encode_stop(Stop(schema=1, job="job"), TOKEN))
    fleet.turns(10)
    assert fleet.engine.forgotten == ["job"]
    assert "job job: it was stopped" in fleet.said
    fleet.begin()
    fleet.turns(10)
    assert fleet.engine.starts == []


def test_a_run_that_ended_on_time_goes_on_and_one_without_progress_waits_longer_each_time(fleet):
    fleet.submit()
    fleet.turns()
    gaps = []
    for _ in range(4):
        fleet.claim("mac")
        fleet.end(STOPPED_ON_TIME)
        before, ended = len(fleet.engine.starts), fleet.now
        while len(fleet.engine.starts) == before:
            fleet.turns(1)
        gaps.append(fleet.now - ended)
    assert gaps == sorted(gaps)
    assert gaps[0] < gaps[-1]
    fleet.claim("mac")
    fleet.publish(7)
    fleet.end(STOPPED_ON_TIME)
    before = len(fleet.engine.starts)
    fleet.turns(1)
    assert len(fleet.engine.starts) == before + 1  # it got further


def test_a_machine_that_cannot_begin_a_job_is_asked_again_when_its_worker_was_started_anew(fleet):
    fleet.submit()
    refusal = Refusal(schema=1, host="mac", worker="w1", at="", why="there is no uv")
    fleet.store.replace(orders.refusal_key("job", "mac"), orders.encode(refusal))
    fleet.engine.connected = [MAC]
    fleet.turns(10)
    assert fleet.said == ["job job waits: no machine can take it; mac: there is no uv"]
    fleet.engine.connected = [MAC._replace(worker="w3")]
    fleet.turns(10)
    assert fleet.started == ["job"]


def test_a_machine_that_refuses_sends_the_job_to_the_next(fleet):
    fleet.submit()
    fleet.turns()
    refusal = Refusal(schema=1, host="mac", worker="w1", at="", why="there is no uv")
    fleet.store.replace(orders.refusal_key("job", "mac"), orders.encode(refusal))
    fleet.engine.states["job"] = Placed(True, "EnvironmentImpossible: there is no uv")
    fleet.turns(5)
    assert fleet.engine.starts[-1].addresses == ("tls://box",)
    assert "job job: EnvironmentImpossible: there is no uv" in fleet.said


# ---- what is queued follows the machines ----------------------------------------------------------------------------


def test_a_queued_job_can_also_be_taken_by_a_machine_that_came_later(fleet):
    fleet.engine.connected = [MAC]
    fleet.submit()
    fleet.turns(5)
    fleet.engine.connected = [MAC, BOX]
    fleet.turns(5)
    assert [start.addresses for start in fleet.engine.starts] == [("tls://mac",), ("tls://mac", "tls://box")]
    assert fleet.engine.forgotten == ["job"]


def test_a_queued_job_does_not_wait_for_a_worker_that_was_started_anew(fleet):
    fleet.engine.connected = [MAC]
    fleet.submit()
    fleet.turns(5)
    fleet.engine.connected = []
    fleet.turns(5)
    assert fleet.said[-1] == "job job waits: no machine is connected"
    fleet.engine.connected = [MAC._replace(worker="w3", address="tls://mac:2")]
    fleet.turns(5)
    assert [start.addresses for start in fleet.engine.starts] == [("tls://mac",), ("tls://mac:2",)]


def test_a_job_that_is_begun_is_not_queued_again_when_a_machine_comes(fleet):
    fleet.engine.connected = [MAC]
    fleet.submit()
    fleet.turns(5)
    fleet.engine.states["job"] = Placed(False, is_begun=True)
    fleet.engine.connected = [MAC, BOX]
    fleet.turns(20)
    assert fleet.started == ["job"]
    assert fleet.engine.forgotten == []


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
    assert start.addresses == ("tls://box",)
    assert start.quiet == perform(joblog.look("job", fleet.tail()), fleet.store)[1]
    cordon = fleet.cordon("mac")
    assert (cordon.job, cordon.number, cordon.lifts_itself) == ("job", 1, True)
    assert cordon.why == "silent for 1 min, in job job"
    assert "job job is queued; it goes on from the checkpoint that was published at noon" in fleet.said


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
    assert fleet.engine.starts[-1].addresses == ("tls://box",)


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
    machines.uncordon(fleet.store, "mac")
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
    fleet.turns(int(LASTS) + 5)
    lifted = replace(fleet.cordon("mac"), is_lifted=True)  # as its worker does when it is there
    fleet.store.replace(orders.cordon_key("mac"), orders.encode(lifted))
    fleet.engine.connected = [MAC._replace(worker="w3", address="tls://mac:2")]
    fleet.turns(10)
    assert fleet.engine.starts[-1].addresses == ("tls://mac:2",)
    assert fleet.cordon("mac").is_lifted


def test_a_cordon_of_a_person_is_not_replaced_by_one_that_lifts_itself(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    mine = Cordon(schema=1, host="mac", at="", why="its fan is loud")
    fleet.store.replace(orders.cordon_key("mac"), orders.encode(mine))
    fleet.turns(2 * int(LASTS))
    assert fleet.cordon("mac") == mine
    assert fleet.engine.starts[-1].addresses == ("tls://box",)


def test_a_damaged_cordon_keeps_its_machine_out(fleet):
    fleet.store.replace(orders.cordon_key("mac"), b"{")
    fleet.submit()
    fleet.turns()
    assert fleet.engine.starts[0].addresses == ("tls://box",)
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
    assert fleet.engine.starts[0].addresses == ("tls://box",)


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
    assert fleet.engine.starts[-1].addresses == ("tls://box",)


def test_a_log_with_nothing_in_it_is_a_new_job(fleet):
    fleet.submit()
    assert fleet.tail() == Tail()
    fleet.turns()
    assert fleet.started == ["job"]
