"""Sums and shares of the time of a run."""

from __future__ import annotations

import pytest

from stallguard.core.time_spent import CATEGORIES, EFFECTIVE, LOST, Spent, effective, ineffective, total

TIMES = Spent(training=60.0, input_wait=10.0, script=5.0, stalled=20.0, backoff=5.0)


def test_each_second_is_either_effective_or_not() -> None:
    assert total(TIMES) == 100.0
    assert total(TIMES, EFFECTIVE) + sum(seconds for _, seconds in ineffective(TIMES)) == 100.0
    assert ineffective(TIMES) == [("stalled", 20.0), ("script", 5.0), ("backoff", 5.0)]
    assert set(EFFECTIVE) | set(LOST) < set(CATEGORIES)


@pytest.mark.parametrize(
    ("times", "share"),
    [
        (TIMES, 0.7),
        (Spent(loss_not_finite=10.0), 0.0),
        (Spent(start_up=10.0), None),  # no batch was seen
        (Spent(), None),
    ],
)
def test_the_effective_share_is_known_from_the_first_batch_on(times: Spent, share: float | None) -> None:
    assert effective(times) == share
