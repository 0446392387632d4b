"""Jobs get machines in their order: no job has room that one before it in the order could have had."""

from __future__ import annotations

import heapq
import os
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallguard.pool.matcher import Waiting, has_room, match

DAYS = int(os.environ.get("DAYS", "300"))  # simulated; 10,000 take two minutes


def waiting(job, place, *, priority=0, begun=False, on=("a",), **needs):
    return Waiting(job, priority, begun, place, {"slots": 1.0, **needs}, on)


def test_the_highest_priority_is_first_then_what_has_begun_then_the_first_submitted():
    jobs = [
        waiting("late", 4),
        waiting("early", 2),
        waiting("begun", 5, begun=True),
        waiting("high", 9, priority=1),
    ]
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
    st.integers(1, 4),
    st.sampled_from([16, 32, 64]),
    st.booleans(),
    st.integers(0, 600),
    st.integers(700, 1440),
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
            needs = {"slots": float(job.slots), "memory": float(job.memory)} | (
                {"cuda": 1.0} if job.gpu else {}
            )
            able = tuple(
                name for name in rooms if name != f"m{job.refused_by}" and has_room(whole[name], needs)
            )
            if able:
                views[number] = Waiting(
                    str(number), job.priority, number in begun, places.index(number), needs, able
                )
        pairs = match(views.values(), rooms)
        for job, name in pairs:
            number = int(job)
            mine = views.pop(number)
            for other in views.values():  # none of those that still wait is before it and fits there
                assert is_before(mine, other) or not (
                    name in other.addresses and has_room(rooms[name], other.needs)
                ), (other, mine)
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
