"""Each row of the table of which jobs start."""

from __future__ import annotations

import pytest

from stallguard.errors import CANNOT_RUN, GAVE_UP, NOT_FOUND, OWN_FAILURE, STOPPED_ON_TIME
from stallguard.fleet.jobs.dispatch import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    OVER,
    START,
    WAIT,
    ConnectedMachine,
    Fitting,
    JobView,
    decide,
)
from stallguard.fleet.store.joblog import Tail
from stallguard.fleet.store.orders import Code, Submission
from stallguard.fleet.store.records import Claim, Holder, HolderEnd

CLAIM = Claim(number=1, holder=Holder(host="mac", boot="b", pid=7, nonce="n"))
MAC = ConnectedMachine("mac", "w1", "tls://mac", {"slots": 1, "memory": 32, "metal": 1})
BOX = ConnectedMachine("box", "w2", "tls://box", {"slots": 2, "memory": 64, "cuda": 2})


def job(needs=None):
    code = Code(digest="0" * 64, size=1)
    return Submission(schema=1, job="job", words=("t.py",), options=(), code=code, needs=needs or {})


def view(needs=None, **known):
    return JobView(**{"submission": job(needs), "tail": Tail()} | known)


def held(**known):
    return view(tail=Tail(claim=CLAIM), **known)


def ended(code, fault="", why="", **known):
    outcome = HolderEnd(number=1, claim=1, run="r", code=code, why=why, fault=fault)
    return view(tail=Tail(claim=CLAIM, outcome=outcome), **known)


def test_a_new_job_starts_on_each_machine_that_has_what_it_needs():
    assert decide(view(), Fitting([MAC, BOX], ())) == (START, "", ("tls://mac", "tls://box"), "")
    assert decide(view({"cuda": 2, "memory": 48}), Fitting([MAC, BOX], ())).addresses == ("tls://box",)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (ended(0), "it is finished"),
        (ended(0, is_stopped=True), "it is finished"),
        (view(is_stopped=True), "it was stopped"),
        (held(is_stopped=True), "it was stopped"),
        (ended(STOPPED_ON_TIME, is_stopped=True), "it was stopped"),
        (ended(1, why="ValueError: bad rate"), "it failed: ValueError: bad rate"),
        (ended(3), "it failed: exit code 3"),
        (ended(139), "it failed: exit code 139"),
        (ended(GAVE_UP, why="3 restarts are enough"), "it failed: 3 restarts are enough"),
    ],
)
def test_a_job_is_over_after_its_end_a_stop_and_a_failure_of_its_own(known, why):
    assert decide(known, Fitting([MAC, BOX], ())) == (OVER, why, (), "")


def test_a_job_with_a_holder_that_renews_waits():
    assert decide(held(), Fitting([MAC, BOX], ())) == (WAIT, "mac trains it", (), "")


def test_a_holder_that_was_silent_has_vanished_and_the_job_starts_elsewhere():
    assert decide(held(has_run_out=True), Fitting([MAC, BOX], ())) == (START, "", ("tls://box",), "mac")


def test_a_vanished_machine_is_told_also_if_no_other_can_take_its_job():
    decision = decide(held(has_run_out=True), Fitting([MAC], ()))
    assert (decision.do, decision.vanished) == (WAIT, "mac")


def test_what_the_engine_has_of_a_vanished_machine_does_not_keep_the_job():
    assert decide(held(has_run_out=True, address="tls://mac"), Fitting([BOX], ())).do == START


def test_a_machine_that_was_judged_already_is_not_judged_again():
    """It was allowed again meanwhile: it can take the job as each other one."""
    decision = decide(held(has_run_out=True, is_judged=True), Fitting([MAC], ()))
    assert decision == (START, "", ("tls://mac",), "")


def test_a_fault_of_the_machine_is_no_failure_of_the_job():
    decision = decide(ended(GAVE_UP, fault="waits for the GPU"), Fitting([MAC, BOX], {"mac"}))
    assert (decision.do, decision.addresses) == (START, ("tls://box",))


@pytest.mark.parametrize("code", [STOPPED_ON_TIME, OWN_FAILURE, CANNOT_RUN, NOT_FOUND, 143, 130, 129])
def test_an_end_before_the_end_starts_again(code):
    assert decide(ended(code, idle=1, since=FIRST_PAUSE), Fitting([MAC], ())).do == START


def test_the_pause_doubles_while_there_is_no_progress_up_to_a_bound():
    def pause(idle):
        return next(s for s in range(1000) if decide(ended(75, idle=idle, since=s), Fitting([MAC], ())).do == START)

    assert [pause(idle) for idle in (0, 1, 2, 3, 4)] == [0, 2, 4, 8, 16]
    assert pause(50) == LONGEST_PAUSE
    assert "starts again 4 s after" in decide(ended(75, idle=2), Fitting([MAC], ())).why


def test_a_job_that_the_engine_has_is_not_given_to_it_twice():
    known = view(address="tls://mac", given=29.0)
    assert decide(known, Fitting([BOX, MAC], ())) == (WAIT, "a machine gets it", (), "")
    assert decide(view(address="tls://mac", given=90.0, is_begun=True), Fitting([MAC, BOX], ())).do == WAIT


@pytest.mark.parametrize(
    ("known", "machines", "cordoned", "why"),
    [
        (view(), [], (), "no machine is connected"),
        (
            view({"cuda": 4}), [MAC, BOX], (),
            "no connected machine has what it needs (cuda=4, slots=1)",
        ),
        (view(), [MAC], {"mac"}, "no machine can take it; cordoned: mac"),
        (
            view(refusals={"mac": "no uv", "box": "no Python 3.13"}), [MAC, BOX], (),
            "no machine can take it; box: no Python 3.13; mac: no uv",
        ),
        (
            view(refusals={"box": "no uv"}), [MAC, BOX], {"mac"},
            "no machine can take it; cordoned: mac; box: no uv",
        ),
    ],
)  # fmt: skip
def test_a_job_that_no_machine_can_take_says_why(known, machines, cordoned, why):
    assert decide(known, Fitting(machines, cordoned)) == (WAIT, why, (), "")


def test_a_machine_that_refused_is_left_out_and_the_next_one_asked():
    assert decide(view(refusals={"mac": "no uv"}), Fitting([MAC, BOX], ())).addresses == ("tls://box",)


@pytest.mark.parametrize(
    ("machines", "cordoned", "given", "addresses"),
    [
        ([MAC, BOX], (), 30.0, ("tls://mac", "tls://box")),
        ([MAC._replace(address="tls://mac:2")], (), 1.0, ("tls://mac:2",)),
        ([MAC, BOX], {"mac"}, 1.0, ("tls://box",)),
    ],
)
def test_a_machine_that_is_gone_or_does_not_begin_a_job_loses_it(machines, cordoned, given, addresses):
    known = view(address="tls://mac", given=given)
    assert decide(known, Fitting(machines, cordoned)) == (START, "", addresses, "")
