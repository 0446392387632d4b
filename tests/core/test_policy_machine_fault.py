"""When a job leaves a machine, and that one machine alone never gives up for it."""

from __future__ import annotations

import pytest

from stallguard.core.diagnosis import causes
from stallguard.core.limits import PolicyLimits
from stallguard.core.policy import TIMES, AttemptHistory, PastAttempt, decide, machine_fault
from stallguard.core.verdicts import Finding
from stallguard.errors import GAVE_UP
from tests.simulation.attempts import Ending, live

HEALTHY = 600.0
FLEET = PolicyLimits(leave_machine=True)


def attempt(cause, number, *, fresh=False, lasted=60.0, code=None):
    began = number * 1000.0
    return PastAttempt(
        cause=cause, confidence=0.9, phase="step", slices=1, device="default", began=began,
        ended=began + lasted, position=(1, 0, 0, 0, 5), fresh=fresh, code=code,
    )  # fmt: skip


def past(cause, times, **more):
    return AttemptHistory(attempts=tuple(attempt(cause, number, **more) for number in range(times)))


@pytest.mark.parametrize("cause", TIMES)
def test_a_cause_is_the_machines_from_its_time_on_and_not_before(cause):
    findings = (Finding(cause, 0.9),)
    assert machine_fault(findings, past(cause, TIMES[cause]), HEALTHY)
    assert not machine_fault(findings, past(cause, TIMES[cause] - 1), HEALTHY)


def test_the_reason_is_in_words_and_counts():
    said = machine_fault((Finding(causes.DEVICE_WAIT, 0.9),), past(causes.DEVICE_WAIT, 3), HEALTHY)
    assert said == f"{causes.title(causes.DEVICE_WAIT)}, 3 times in a row"


def test_what_is_counted_is_this_cause_and_no_other_that_came_before():
    assert not machine_fault((Finding(causes.GPU_ERROR_STICKY, 0.9),), past(causes.DEVICE_WAIT, 3), HEALTHY)


@pytest.mark.parametrize("cause", [causes.SCRIPT_ERROR, causes.HOST_DEADLOCK, causes.OUT_OF_MEMORY])
def test_a_fault_of_the_training_is_none_of_the_machine(cause):
    assert not machine_fault((Finding(cause, 0.9),), past(cause, 9), HEALTHY)


def test_without_a_finding_nothing_is_known():
    assert not machine_fault((), past(causes.DEVICE_WAIT, 9), HEALTHY)


def waits(attempt):
    return Ending(causes.DEVICE_WAIT)


def test_a_job_of_a_fleet_leaves_at_the_second_device_wait_where_one_machine_alone_tries_on():
    left, stayed = live(waits, FLEET, gpu=True), live(waits, gpu=True)
    assert left.tries == [(1, "default")]
    assert left.end.action == "give_up"
    assert left.end.code == GAVE_UP
    assert "another machine can continue the training" in left.end.why
    assert causes.title(causes.DEVICE_WAIT) in left.end.why
    assert len(stayed.tries) > len(left.tries)


def test_device_waits_with_a_healthy_attempt_between_them_leave_no_machine():
    night = live(lambda one: Ending(causes.DEVICE_WAIT, at=60 * one.number, lasted=7200.0), FLEET, gpu=True, most=6)
    assert [one.action for one in night.decisions] == ["restart"] * 6


def test_a_second_kill_for_want_of_memory_leaves_the_machine():
    night = live(lambda _: Ending(causes.OUT_OF_MEMORY_KILL, code=-9), FLEET)
    assert len(night.tries) == 1
    assert night.end.action == "give_up"
    assert night.end.code == 137


def test_a_training_that_is_finished_is_finished_also_on_a_bad_machine():
    history = AttemptHistory(attempts=(attempt(causes.GPU_BUSY_AFTER_KILL, 0, code=0),))
    assert decide((Finding(causes.GPU_BUSY_AFTER_KILL, 0.9),), history, FLEET).action == "finish"
