"""Thresholds: a floor for what is known, a prior for what is not, and room for what this run itself showed."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.detection.verdict import Circumstances, thresholds
from stallguard.core.learned import Baseline, Runs, add_gaps, add_runs
from stallguard.core.limits import NEVER, DetectorLimits, PhaseLimits, PhaseTable

LIMITS = DetectorLimits()
HERE = Circumstances()


def known(seconds: float = 0.1, count: int = 600, **runs: float) -> Baseline:
    base = add_gaps(Baseline(), seconds, 10.0, LIMITS, count=count)
    return add_runs(base, Runs(**runs), seconds, LIMITS) if runs else base


def test_an_unknown_step_is_judged_by_its_priors_and_a_known_one_by_its_floors():
    new, old = thresholds("STEP", Baseline(), HERE, LIMITS), thresholds("STEP", known(), HERE, LIMITS)

    assert (new.deadlock, new.external, new.spin, new.working) == (120.0, 120.0, 300.0, 900.0)
    assert (old.deadlock, old.external, old.spin, old.working) == (10.0, 30.0, 120.0, 600.0)


@pytest.mark.parametrize("name", [name.upper() for name in PhaseTable.__struct_fields__])
def test_the_classes_keep_their_order_in_every_row(name):
    for base in (Baseline(), known(), known(20.0, 40, external=60.0, spin=15.0)):
        bar = thresholds(name, base, HERE, LIMITS)
        assert bar.deadlock <= bar.external <= bar.working
        assert bar.spin <= bar.working


def test_a_wait_that_was_healthy_before_is_allowed_three_times_over():
    assert thresholds("STEP", known(external=40.0), HERE, LIMITS).external == 120.0
    assert thresholds("EPOCH_BOUNDARY", known(5.0, 4, deadlock=8.0), HERE, LIMITS).deadlock == 24.0


def test_busy_silence_may_last_a_multiple_of_what_batches_take():
    assert thresholds("STEP", known(60.0, 40), HERE, LIMITS).spin > 600.0


def test_after_a_new_shape_was_compiled_steps_may_be_five_times_as_long_as_before_and_not_three():
    base = known(30.0, spin=90.0)
    new_shape = msgspec.structs.replace(base, unsettled=10)

    assert thresholds("STEP", base, HERE, LIMITS).spin < 350.0
    assert thresholds("STEP", new_shape, HERE, LIMITS).spin == 450.0


def test_statistics_never_add_more_than_the_cap_to_the_working_floor():
    assert thresholds("STEP", known(120.0, 40), HERE, LIMITS).working <= 900.0
    assert thresholds("STEP", known(600.0, 40), HERE, LIMITS).working <= 1500.0


def test_a_busy_machine_stretches_what_is_measured_in_work_and_not_what_is_idle():
    calm, busy = (thresholds("STEP", known(), Circumstances(machine_slowdown=factor), LIMITS) for factor in (1.0, 4.0))

    assert (busy.spin, busy.working) == (4 * calm.spin, 4 * calm.working)
    assert (busy.deadlock, busy.external) == (calm.deadlock, calm.external)


def test_a_refuted_alarm_stretches_everything():
    once, twice = (thresholds("STEP", known(), Circumstances(strikes=s), LIMITS) for s in (1.0, 2.0))

    assert msgspec.structs.astuple(twice) == tuple(2 * value for value in msgspec.structs.astuple(once))


def test_a_remote_job_gets_the_full_floor():
    bar = thresholds("STEP", known(), Circumstances(remote=True), LIMITS)

    assert (bar.deadlock, bar.external) == (30.0, 75.0)


def test_idleness_is_no_evidence_where_it_is_usual_or_where_the_gpu_cannot_be_read():
    habit = known(10.0, 20)
    for _ in range(60):
        habit = add_runs(habit, Runs(deadlock=9.0), 10.0, LIMITS)

    assert thresholds("STEP", habit, HERE, LIMITS).deadlock >= 300.0 / 2
    assert thresholds("STEP", known(), Circumstances(blind=True), LIMITS).external == 300.0


def test_code_between_trainings_may_be_busy_for_ever():
    assert thresholds("IDLE", Baseline(), HERE, LIMITS).working >= NEVER


def test_a_compiled_shape_puts_the_busy_classes_back_to_their_priors():
    bar = thresholds("STEP", known(work=2.0), HERE, LIMITS)

    assert (bar.spin, bar.working, bar.deadlock) == (300.0, 900.0, 10.0)


def test_every_row_has_priors_that_are_no_stricter_than_its_floors():
    for name in PhaseTable.__struct_fields__:
        row: PhaseLimits = getattr(LIMITS.rows, name)
        for kind in ("deadlock", "external", "spin", "working"):
            assert getattr(row, f"prior_{kind}") >= getattr(row, kind)
