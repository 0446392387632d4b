"""The dispatcher on a real store: which jobs it gives to the engine, and when."""

from __future__ import annotations

import heapq
import os
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallguard.errors import STOPPED_ON_TIME
from stallguard.fleet.engine.dispatcher import Waiting, has_room, match
from stallguard.fleet.jobs.dispatch import Placed
from stallguard.fleet.store import StoreError, orders, records
from stallguard.fleet.store.orders import Stop
from stallguard.fleet.store.signing import REVOKED, Signatures
from tests import examples
from tests.fleet.dispatching import BOX, LASTS, MAC, OTHER, OWN, Fleet
from tests.fleet.members import revoked, signs

DAYS = int(os.environ.get("DAYS", str(examples.of(300, fast=40))))  # simulated; 10,000 take two minutes


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
    assert (start.address, start.quiet) == ("tls://mac", "")


def replace_resources(machine, **more):
    return machine._replace(resources={**machine.resources, **more})


def test_the_highest_priority_starts_first_and_each_of_the_others_as_soon_as_there_is_room(fleet):
    for job, priority in (("a", 0), ("b", 5), ("c", 5), ("d", -1)):
        fleet.submit(job, priority=priority)
    fleet.turns(3)
    assert fleet.started == ["b", "c"]  # on two machines with a slot each
    assert "job a waits: no machine that can take it has room" in fleet.said
    fleet.claim("mac", "b")
    fleet.end(0, "b")
    fleet.turns(10)
    assert fleet.started == ["b", "c", "a"]
    fleet.submit("e", priority=9)
    fleet.turns(5)
    fleet.claim("box", "c")
    fleet.end(0, "c")
    fleet.turns(10)
    assert fleet.started == ["b", "c", "a", "e"]


def test_a_job_that_has_begun_goes_on_before_one_of_the_same_priority_begins(fleet):
    fleet.engine.connected = []
    fleet.submit("begun")
    fleet.submit("a-first", priority=0)
    fleet.claim("away", "begun")
    fleet.end(75, "begun")
    fleet.turns(5)
    fleet.engine.connected = [MAC]
    fleet.turns(10)
    assert fleet.started == ["begun"]


def test_a_job_that_this_fleet_did_not_sign_is_refused_and_that_is_said_once(fleet):
    fleet.submit("alien", by=OTHER)
    fleet.submit("own")
    fleet.turns(30)
    assert fleet.started == ["own"]
    assert [line for line in fleet.said if "alien" in line] == [
        "job alien is refused: its signature is not of this fleet: the authority did not issue its certificate"
    ]


def test_a_job_that_waits_is_refused_when_who_submitted_it_is_revoked(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    mine = Signatures(OWN.member)
    fleet = Fleet(tmp_path / "store", mine)
    fleet.engine.connected = []
    fleet.submit("lost", by=signs("pro"))
    fleet.submit("own")
    fleet.turns(5)
    fleet.store.replace(REVOKED, revoked("pro"))
    mine.refresh(fleet.store)
    fleet.engine.connected = [MAC, BOX]
    fleet.turns(30)
    assert fleet.started == ["own"]
    assert [line for line in fleet.said if "refused" in line] == ["job lost is refused: pro signed it, and is revoked"]


def test_a_refusal_that_the_machines_member_did_not_sign_does_not_count(fleet):
    fleet.submit()
    fleet.refuse("mac", "w1", "it is mine", by=signs("pro"))
    fleet.engine.connected = [MAC]
    fleet.turns(5)
    assert fleet.started == ["job"]


def test_a_link_in_place_of_a_jobs_folder_holds_up_no_other_job_and_is_said_once(fleet, tmp_path):
    (tmp_path / "store" / "jobs").mkdir(exist_ok=True)
    (tmp_path / "store" / "jobs" / "alien").symlink_to(tmp_path)
    fleet.submit("own")
    fleet.turns(30)
    assert fleet.started == ["own"]
    (said,) = [line for line in fleet.said if "alien" in line]
    assert "alien is a symbolic link" in said


def test_a_link_in_place_of_a_submission_that_was_read_holds_up_no_other_job(fleet, tmp_path):
    fleet.engine.connected = []
    fleet.submit("first")
    fleet.submit("second")
    fleet.turns(2)
    folder = tmp_path / "store" / "jobs" / "first"
    (folder / "submission").rename(folder / "moved")
    (folder / "submission").symlink_to(tmp_path)
    fleet.engine.connected = [MAC]
    fleet.turns(20)
    assert fleet.started == ["second"]
    assert any("first is refused" in line for line in fleet.said)


def test_a_submission_that_was_copied_to_another_name_is_refused(fleet):
    fleet.submit("own")
    fleet.store.create(orders.Submission.place(job="copy"), fleet.store.read(orders.Submission.place(job="own")))
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
    assert fleet.engine.starts[0].address == "tls://box"


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
    assert fleet.said.count("job job: it failed: exit code 1") == 1  # it is in the archive
    fleet.store.remove("archive")
    fleet.begin()
    fleet.turns(30)
    assert fleet.engine.starts == []
    assert fleet.said.count("job job: it failed: exit code 1") == 2  # its log says the same


def test_the_machine_of_a_job_that_is_stopped_is_told_until_its_run_has_ended(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("box")
    fleet.turns(10)
    assert fleet.engine.notified == []
    fleet.store.replace(orders.Stop.place(job="job"), orders.encode(Stop(schema=1, job="job"), OWN))
    fleet.store.replace(orders.news_key("job"), b"")
    fleet.turns(4)
    assert fleet.engine.notified == [("tls://box", "job")]
    fleet.turns(30)
    assert len(fleet.engine.notified) > 3
    fleet.end(75)
    fleet.turns(6)
    notified = len(fleet.engine.notified)
    fleet.turns(30)
    assert len(fleet.engine.notified) == notified


def test_a_stop_that_is_signed_ends_a_job_and_another_does_not(fleet):
    fleet.submit()
    fleet.store.replace(orders.Stop.place(job="job"), orders.encode(Stop(schema=1, job="job"), OTHER))
    fleet.turns(10)
    assert fleet.started == ["job"]
    fleet.store.replace(orders.Stop.place(job="job"), orders.encode(Stop(schema=1, job="job"), OWN))
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
    fleet.refuse("mac", "w1", "there is no uv")
    fleet.engine.connected = [MAC]
    fleet.turns(10)
    assert fleet.said == ["job job waits: no machine can take it; mac: there is no uv"]
    fleet.engine.connected = [MAC._replace(worker="w3")]
    fleet.turns(10)
    assert fleet.started == ["job"]


def test_a_machine_that_refuses_sends_the_job_to_the_next(fleet):
    fleet.submit()
    fleet.turns()
    fleet.refuse("mac", "w1", "there is no uv")
    fleet.engine.states["job"] = Placed(True, "EnvironmentImpossible: there is no uv")
    fleet.turns(5)
    assert fleet.engine.starts[-1].address == "tls://box"
    assert "job job: EnvironmentImpossible: there is no uv" in fleet.said


# ---- what is queued follows the machines ----------------------------------------------------------------------------


def test_a_job_that_its_machine_does_not_begin_is_taken_by_one_that_came_later(fleet):
    fleet.engine.connected, fleet.engine.begins = [MAC], False
    fleet.submit()
    fleet.turns(5)
    fleet.engine.connected = [MAC, BOX]
    fleet.turns(20)
    assert [start.address for start in fleet.engine.starts] == ["tls://mac"]
    fleet.turns(10)
    assert [start.address for start in fleet.engine.starts] == ["tls://mac", "tls://box"]
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
    assert [start.address for start in fleet.engine.starts] == ["tls://mac", "tls://mac:2"]


def test_a_job_that_is_begun_is_not_queued_again_when_a_machine_comes(fleet):
    fleet.engine.connected = [MAC]
    fleet.submit()
    fleet.turns(5)
    fleet.engine.states["job"] = Placed(False, is_begun=True)
    fleet.engine.connected = [MAC, BOX]
    fleet.turns(20)
    assert fleet.started == ["job"]
    assert fleet.engine.forgotten == []


def test_a_store_that_can_be_read_and_not_written_to_makes_no_holder_silent(fleet, monkeypatch):
    fleet.submit()
    fleet.turns()
    fleet.claim("mac")
    fleet.turns(10)
    real = fleet.dispatcher._store.replace

    def refuse(key, data):
        raise StoreError("Read-only file system")

    monkeypatch.setattr(fleet.dispatcher._store, "replace", refuse)
    fleet.turns(300)
    assert [line for line in fleet.said if "not written to" in line] == [
        "the store can be read and not written to (Read-only file system): no holder counts as silent"
    ]
    monkeypatch.setattr(fleet.dispatcher._store, "replace", real)
    fleet.turns(5)
    fleet.renew()
    fleet.turns(5)
    assert "the store can be written to again" in fleet.said
    assert fleet.cordon("mac") is None
    fleet.turns(int(LASTS) + 15)  # now it is silent
    assert fleet.cordon("mac").lifts_itself


def test_the_machine_of_a_run_that_a_person_reads_is_told_once_for_each_wish(fleet):
    fleet.submit()
    fleet.turns()
    fleet.claim("box")
    fleet.turns(10)
    for wishes in (1, 2):
        fleet.store.replace(orders.reader_key("job"), b"")
        fleet.turns(10)
        assert fleet.engine.notified == [("tls://box", "job")] * wishes
        assert fleet.store.names("news") == []


def test_the_machine_of_a_job_that_a_person_began_there_is_told_too(fleet):
    fleet.claim("mac", "by-hand")
    fleet.store.replace(records.mark_key("by-hand@1", "mac"), b"1")
    fleet.turns(10)
    fleet.store.replace(orders.reader_key("by-hand"), b"")
    fleet.store.replace(orders.reader_key("unknown"), b"")
    fleet.turns(10)
    assert fleet.engine.notified == [("tls://mac", "by-hand")]


def waiting(job, place, *, priority=0, begun=False, on=("a",), **needs):
    return Waiting(job, priority, begun, place, {"slots": 1.0, **needs}, on)


def test_the_highest_priority_is_first_then_what_has_begun_then_the_first_submitted():
    jobs = [waiting("late", 4), waiting("early", 2), waiting("begun", 5, begun=True), waiting("high", 9, priority=1)]
    for expected in ("high", "begun", "early", "late"):
        assert match(jobs, {"a": {"slots": 1.0}}) == [(expected, "a")]
        jobs = [one for one in jobs if one.job != expected]


def test_a_machine_gets_as_many_jobs_as_it_has_room_for():
    jobs = [waiting(name, place, memory=16.1) for place, name in enumerate("abc")]
    assert match(jobs, {"a": {"slots": 4.0, "memory": 32.2}}) == [("a", "a"), ("b", "a")]
    assert match(jobs, {"a": {"slots": 1.0, "memory": 64.0}}) == [("a", "a")]
    assert match(jobs, {"a": {"slots": 4.0}}) == []


def test_a_job_without_a_gpu_leaves_the_machine_with_one_to_a_job_that_needs_it():
    rooms = {"a": {"slots": 1.0, "cuda": 1.0}, "b": {"slots": 1.0}}
    plain, gpu = waiting("plain", 1, on=("a", "b")), waiting("gpu", 2, on=("a",), cuda=1.0)
    assert match([plain, gpu], rooms) == [("plain", "b"), ("gpu", "a")]


def test_small_jobs_do_not_hold_up_a_large_one_for_ever():
    large = waiting("large", 1, on=("a", "b"), memory=60.0)
    small = [waiting(f"small-{n}", n, on=("a", "b"), memory=8.0) for n in (2, 3)]
    rooms = {"a": {"slots": 8.0, "memory": 56.0}, "b": {"slots": 8.0, "memory": 8.0}}
    assert match([large, *small], rooms) == [("small-2", "b")]  # a is kept
    rooms["a"]["memory"] = 64.0
    assert ("large", "a") in match([large, *small], rooms)


def test_a_machine_that_is_not_connected_any_more_gets_nothing():
    assert match([waiting("job", 1, on=("gone", "b"))], {"b": {"slots": 1.0}}) == [("job", "b")]


# ---- simulated days --------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    at: int  # minute of its submission
    lasts: int  # minutes
    priority: int
    slots: int
    memory: int
    gpu: bool
    refused_by: int  # the number of a machine, or none


JOBS = st.builds(
    Job, st.integers(0, 1200), st.integers(1, 600), st.integers(-1, 2), st.integers(1, 2),
    st.sampled_from([0, 8, 30, 60]), st.booleans(), st.integers(0, 9),
)  # fmt: skip
# Slots, memory, whether it has a GPU, the minutes in which its hours begin and end.
MACHINES = st.tuples(
    st.integers(1, 4), st.sampled_from([16, 32, 64]), st.booleans(), st.integers(0, 600), st.integers(700, 1440)
)


def is_before(one, other):
    if one.priority != other.priority:
        return one.priority > other.priority
    return one.place < other.place if one.has_begun == other.has_begun else one.has_begun


@settings(max_examples=DAYS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MACHINES, min_size=1, max_size=5), st.lists(JOBS, min_size=1, max_size=25))
def test_no_job_starts_in_room_that_one_before_it_could_have_had(machines, jobs):
    whole = {
        f"m{n}": {"slots": float(slots), "memory": float(memory)} | ({"cuda": 1.0} if gpu else {})
        for n, (slots, memory, gpu, _, _) in enumerate(machines)
    }
    used = {name: {} for name in whole}
    moments = sorted({one.at for one in jobs} | {at for _, _, _, *hours in machines for at in hours})
    heapq.heapify(moments)
    running, begun, started = [], set(), {}
    places = [at for at, _ in sorted(enumerate(jobs), key=lambda one: one[1].at)]
    to_come = {number: jobs[number] for number in places}
    while moments:
        now = heapq.heappop(moments)
        open_now = {f"m{n}" for n, (*_, opens, closes) in enumerate(machines) if opens <= now < closes}
        for entry in [one for one in running if one[0] <= now or one[2] not in open_now]:
            running.remove(entry)
            ends, number, name, needs = entry
            for resource, amount in needs.items():
                used[name][resource] -= amount
            if ends > now:  # its machine's hours are over: it goes on elsewhere
                to_come[number] = jobs[number]._replace(lasts=ends - now)
        rooms = {
            name: {key: amount - used[name].get(key, 0.0) for key, amount in whole[name].items()}
            for name in sorted(open_now)
        }
        views = {}
        for number, job in to_come.items():
            if job.at > now:
                continue
            needs = {"slots": float(job.slots), "memory": float(job.memory)} | ({"cuda": 1.0} if job.gpu else {})
            able = tuple(name for name in rooms if name != f"m{job.refused_by}" and has_room(whole[name], needs))
            if able:
                views[number] = Waiting(str(number), job.priority, number in begun, places.index(number), needs, able)
        pairs = match(views.values(), rooms)
        for job, name in pairs:
            number = int(job)
            mine = views.pop(number)
            for other in views.values():  # none of those that still wait is before it and fits there
                assert is_before(mine, other) or not (name in other.addresses and has_room(rooms[name], other.needs)), (
                    other,
                    mine,
                )
            for resource, amount in mine.needs.items():
                rooms[name][resource] -= amount
                used[name][resource] = used[name].get(resource, 0.0) + amount
                assert rooms[name][resource] >= -1e-6
            lasts = to_come.pop(number).lasts
            running.append((now + lasts, number, name, mine.needs))
            begun.add(number)
            started[number] = now
            heapq.heappush(moments, now + lasts)
        if views:  # the first of those that wait has no room anywhere
            first = next(
                one for one in views.values()
                if all(one is other or is_before(one, other) for other in views.values())
            )  # fmt: skip
            assert not any(has_room(rooms[name], first.needs) for name in first.addresses)
    assert not running
