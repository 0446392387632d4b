"""When a checkpoint is due: at seams and now and then inside, never at more than its share of the time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.probe.checkpoint.schedule import CREDIT, FIRST, LEAST, CheckpointSchedule


def test_the_first_epoch_end_saves_and_so_does_a_long_first_epoch():
    assert CheckpointSchedule(300, 0.01, 100.0).due(101.0, between_epochs=True)
    assert not CheckpointSchedule(300, 0.01, 100.0).due(101.0, between_epochs=False)
    assert CheckpointSchedule(300, 0.01, 100.0).due(100.0 + FIRST, between_epochs=False)


def test_inside_an_epoch_the_interval_rules():
    pace = CheckpointSchedule(300, 0.01, 0.0)
    pace.saved(20.0, 20.1)
    assert not pace.due(319.0, between_epochs=False)
    assert pace.due(320.2, between_epochs=False)


def test_a_save_that_costs_much_stretches_the_interval():
    pace = CheckpointSchedule(300, 0.01, 0.0)
    pace.saved(20.0, 30.0)  # 10 s of 1 %: the next in 990 s
    assert not pace.due(1019.0, between_epochs=False)
    assert not pace.due(1019.0, between_epochs=True)
    assert pace.due(1020.1, between_epochs=True)


def test_a_short_interval_is_no_longer_for_the_first():
    assert CheckpointSchedule(2, 0.01, 0.0).due(2.0, between_epochs=False)


def test_the_end_of_a_fit_is_kept_beyond_the_share_as_long_as_the_credit_lasts():
    pace, kept = CheckpointSchedule(300, 0.01, 0.0), 0
    pace.saved(0.0, 0.1)
    for end in range(2, 1002, 2):
        if pace.at_end(float(end), 2.0):
            pace.saved(float(end), end + 0.1)
            kept += 1

    assert CREDIT * 0.01 / 0.1 <= kept <= CREDIT * 0.01 / 0.1 + 1000 * 0.01 / 0.1


@given(
    costs=st.lists(st.floats(0.001, 30), min_size=5, max_size=30), step=st.floats(0.01, 50), share=st.floats(0.005, 0.5)
)
def test_in_the_long_run_no_more_than_the_share_is_spent(costs, step, share):
    """Every save but the last is paid for by the rest after it; so all but one are within the share."""
    pace, now, spent = CheckpointSchedule(0.0, share, 0.0), 0.0, []
    waiting = list(costs)
    while waiting and len(spent) < 30 and now < 1e7:
        now = now + step if step > 1e-3 else now
        if pace.due(now, between_epochs=True):
            cost = waiting.pop()
            pace.saved(now, now + cost)
            now += cost
            spent.append(cost)
        else:
            now = max(now, pace.next - step)
    assert sum(spent[:-1]) <= share * now + 1e-6


def test_reading_the_state_of_objects_gets_its_share_of_the_time_and_no_more():
    pace = CheckpointSchedule(300, 0.01, 100.0)
    assert pace.allowance(100.0) == pytest.approx(CREDIT * 0.01)
    pace.digested(2.0)
    assert pace.allowance(100.0) == LEAST
    assert pace.allowance(1100.0) == pytest.approx(10.0)
