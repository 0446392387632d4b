"""When a lease can be taken, and when a holder ends its training."""

from __future__ import annotations

import pytest

from stallguard.fleet.machines import lease
from stallguard.fleet.machines.lease import (
    ENDING,
    FENCED,
    HELD,
    OVER,
    Tenure,
    has_run_out,
    judge,
    moved,
    renewed,
    watched,
)

LASTS = 60.0


def watch(*reads):
    """Return the watch after reads, each (second, mark)."""
    seen = None
    for now, mark in reads:
        seen = watched(seen, mark, now, LASTS)
    return seen


def test_a_lease_that_does_not_change_for_its_length_can_be_taken():
    reads = [(second, "a") for second in range(0, 60, 5)]
    assert not has_run_out(watch(*reads), LASTS)
    assert has_run_out(watch(*reads, (60, "a")), LASTS)


def test_a_change_begins_the_count_anew():
    reads = [(second, "a") for second in range(0, 60, 5)]
    assert not has_run_out(watch(*reads, (60, "b"), (65, "b")), LASTS)


def test_an_outage_leaves_a_living_holder_a_third_of_a_lease_to_renew():
    """It was away for all: of an outage a sixth counts."""
    assert not has_run_out(watch(*((one, "a") for one in (0, 10, 20, 30, 3605, 3614, 3623))), LASTS)


def test_a_store_that_answers_slowly_does_not_keep_a_dead_holder():
    assert has_run_out(watch(*((second, "a") for second in range(0, 200, 25))), LASTS)


def test_a_reader_whose_clock_goes_back_counts_anew():
    assert watch((100, "a"), (110, "a"), (50, "a")).quiet == 0


def orders_of(tenure, seconds, lasts=LASTS):
    given = []
    for tenth in range(seconds * 10):
        tenure, orders = judge(tenure, tenth / 10, lasts)
        given += [(tenth / 10, order) for order in orders]
    return given


def test_a_holder_that_cannot_renew_ends_its_training_before_a_reader_can_claim():
    assert orders_of(Tenure(HELD, 1, renewed=0.0, woke=-99), 120) == [(42, "end"), (48, "term"), (54, "kill")]


def test_a_holder_that_renews_orders_nothing():
    tenure = Tenure(HELD, 1, renewed=0.0, woke=-99)
    for second in range(0, 3600, 10):
        tenure, orders = judge(tenure, second + 9.9, LASTS)
        assert orders == ()
        tenure = renewed(tenure, second + 10.0)
    assert tenure.state == HELD


def test_an_end_that_was_ordered_stays_ordered():
    tenure, orders = judge(Tenure(HELD, 1, renewed=0.0, woke=-99), 43.0, LASTS)
    assert (tenure.state, orders) == (ENDING, ("end",))
    tenure, orders = judge(renewed(tenure, 44.0), 50.0, LASTS)
    assert (tenure.state, orders) == (ENDING, ())


def test_a_holder_that_was_fenced_ends_at_once():
    tenure = moved(Tenure(HELD, 1, renewed=0.0, woke=-99), "fenced", 5.0)
    given = []
    for second in range(5, 60):
        tenure, orders = judge(tenure, float(second), LASTS)
        given += [(second, order) for order in orders]
    assert given == [(5, "end"), (14, "term"), (29, "kill")]


def test_a_holder_that_slept_has_time_to_renew():
    tenure = Tenure(HELD, 1, renewed=0.0, woke=1000.0)
    assert judge(tenure, 1005.0, LASTS)[1] == ()
    assert judge(renewed(tenure, 1004.0), 1011.0, LASTS)[1] == ()
    assert judge(tenure, 1011.0, LASTS)[1] == ("end", "term", "kill")


@pytest.mark.parametrize("state", [HELD, ENDING, FENCED, OVER])
def test_each_state_leads_to_the_end(state):
    assert moved(Tenure(state, 1, 0.0), "over", 1.0).state == OVER
    assert {after for (before, _), after in lease.TRANSITIONS.items() if before == OVER} == set()
