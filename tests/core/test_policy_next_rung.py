"""Which step of which remedy follows when a trouble comes back, and what is said if none is left."""

from __future__ import annotations

import pytest

from stallguard.core.diagnosis import causes
from stallguard.core.events import Exited, Heartbeat
from stallguard.core.history import History
from stallguard.core.limits import DEFAULTS, PolicyLimits
from stallguard.core.policy import AttemptHistory, add_attempt, decide
from stallguard.core.verdicts import Finding
from tests.simulation.attempts import Ending, Night, history_of, live

SAME, HALF = (1, "default"), (2, "default")


def named(*names: str, rows: int | None = None, limits: PolicyLimits | None = None) -> Night:
    """Return a night without progress whose attempts end for one cause after the other."""
    return live(lambda one: Ending(names[min(one.number, len(names)) - 1]), limits, rows=rows)


def climbed(
    findings: list[Finding], limits: PolicyLimits = DEFAULTS, *, gpu: bool = False
) -> tuple[list[tuple[int, str]], str]:
    """Return the steps that are taken while each attempt ends so at the same batch, and why no more are."""
    past, tries, why = AttemptHistory(), [], ""
    for number in range(12):
        began, (factor, device) = 100.0 * number, tries[-1] if tries else (1, "default")
        ended = history_of(Ending("", at=60), rows=64, gpu=gpu)
        past = add_attempt(past, ended, findings, factor, device, began, began + 50.0)
        chosen = decide(findings, past, limits)
        why = chosen.why
        if chosen.action != "restart":
            break
        tries.append((chosen.slices, chosen.device))
    return tries, why


def test_giving_up_names_each_rung_and_why_it_is_closed() -> None:
    assert live(lambda _: Ending(causes.DEVICE_WAIT), rows=64).end.why == (
        "2 restarts in a row made no progress, and nothing is left to try: a new process with the same batch would "
        "change nothing; a smaller batch was tried; the training was not seen to use a GPU"
    )
    assert live(lambda _: Ending(causes.BUSY_LOOP)).end.why == (
        "the training stalled or failed 2 times without getting past it, and nothing is left to try: a new process "
        "with the same batch was tried 1 time; a smaller batch is no remedy for this cause; the CPU is no remedy for "
        "this cause"
    )
    ordered = live(lambda _: Ending(causes.DEVICE_WAIT), PolicyLimits(on_stall="halve"), rows=64).end.why
    assert "same batch is not ordered; 1/128 of a batch of 64 rows is less than 1 row; the CPU is not" in ordered
    assert "1/2 of a batch of 1 row is less than 1 row" in live(lambda _: Ending(causes.OUT_OF_MEMORY), rows=1).end.why


def test_a_step_that_is_repeated_is_taken_for_another_name_of_the_trouble_too() -> None:
    night = named(causes.MEMORY_THRASH, causes.MEMORY_THRASH, causes.MEMORY_GROWTH, causes.MEMORY_THRASH, rows=64)
    assert [factor for factor, _ in night.tries] == [2, 4, 8, 16, 32, 64]


def test_the_steps_of_a_cause_that_fits_about_as_well_follow_those_of_the_first() -> None:
    """Without the stacks, what is known of a lock in a tf.py_function is 57 % for one and 56 % for the other."""
    findings = [Finding(causes.HOST_DEADLOCK, 0.57), Finding(causes.DEVICE_WAIT, 0.56), Finding(causes.UNKNOWN, 0.1)]
    tries, why = climbed(findings)
    assert tries == [SAME, HALF]
    assert why.endswith("the training was not seen to use a GPU")
    ordered = PolicyLimits(causes=("host-deadlock=restart",))
    assert set(climbed(findings, ordered)[0]) == {SAME}, "an order names all that is to be tried"


def test_a_step_that_another_likely_cause_takes_twice_is_taken_a_second_time() -> None:
    findings = [Finding(causes.DEVICE_WAIT, 0.63), Finding(causes.OUTSIDE_WAIT, 0.33)]
    small = PolicyLimits(min_batch=64)
    assert climbed(findings, small)[0] == [SAME, SAME]
    assert climbed(findings[:1], small)[0] == [SAME]


@pytest.mark.parametrize(
    ("cause", "other"),
    [
        (Finding(causes.GPU_OUT_OF_MEMORY, 0.93), Finding(causes.NATIVE_CRASH, 0.66)),
        (Finding(causes.MEMORY_THRASH, 0.58), Finding(causes.DEVICE_WAIT, 0.33)),
    ],
    ids=["out of memory, or a crash", "waits for memory, or for its device"],
)
def test_a_step_that_is_repeated_comes_before_those_of_another_cause(cause: Finding, other: Finding) -> None:
    assert climbed([cause, other], gpu=True)[0] == [
        *((factor, "default") for factor in (2, 4, 8, 16, 32, 64)), (64, "cpu"),
    ]  # fmt: skip


def test_a_cause_with_an_order_of_the_user_gives_no_step_beside_it() -> None:
    limits = PolicyLimits(causes=("device-wait=restart",))
    either = [Finding(causes.BUSY_LOOP, 0.6), Finding(causes.DEVICE_WAIT, 0.5)]
    assert climbed(either, limits, gpu=True)[0] == [SAME]
    alone = [Finding(causes.DEVICE_WAIT, 0.3)]  # so unsure that the remedy of the unknown is used
    assert climbed(alone, limits, gpu=True) == climbed([], limits, gpu=True)


def test_reasons_for_giving_up_say_nothing_that_did_not_occur() -> None:
    untried = named(causes.OUT_OF_MEMORY, causes.OUT_OF_MEMORY, causes.HOST_DEADLOCK, rows=64).end.why
    assert "a new process with the same batch would change nothing" in untried
    crashes = live(lambda one: Ending(causes.NATIVE_CRASH, at=60 * one.number, code=-6)).end.why
    assert "failed 4 times, and nothing" in crashes, "each got further than the one before"
    once = named(causes.BUSY_LOOP, limits=PolicyLimits(no_progress_limit=1)).end.why
    assert once.startswith("1 restart in a row made no progress")


def test_a_restart_for_progress_alone_does_not_say_that_it_cures_the_cause() -> None:
    night = live(lambda one: Ending(causes.GPU_OUT_OF_MEMORY, at=60 * one.number), rows=1, most=2)
    assert {one.why for one in night.decisions} == {"the training got further than before (same batch)"}


def test_rows_of_an_attempt_that_ended_in_an_earlier_fit_are_not_those_of_this_one() -> None:
    past, findings = AttemptHistory(), [Finding(causes.OUT_OF_MEMORY_KILL, 0.9)]
    for number, (fits, rows, factor) in enumerate([(1, 4, 1), (2, None, 2), (2, None, 4)], start=1):
        began = number * 100.0
        heartbeat = Heartbeat(at=began, attempt=number, beats=50 + number, fits=fits, epoch=0, batch=number)
        ended = History(attempt=number, heartbeat=heartbeat, rows=rows, exited=Exited(at=1.0, attempt=number, code=-9))
        past = add_attempt(past, ended, findings, factor, "default", began, began + 90.0)
    assert decide(findings, past, PolicyLimits()).slices == 8
