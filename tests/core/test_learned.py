"""The statistic of a phase: many gaps at once, constant size, and it forgets."""

from __future__ import annotations

import random

import msgspec
import pytest

from stallguard.core import learned
from stallguard.core.learned import Baseline, Runs, add_gaps, add_runs, quantiles
from stallguard.core.limits import DetectorLimits

LIMITS = DetectorLimits()


def fed(*gaps: float) -> Baseline:
    base = Baseline()
    for index, gap in enumerate(gaps):
        base = add_gaps(base, gap, float(index), LIMITS)
    return base


@pytest.mark.parametrize("seconds", [0.0004, 0.001, 0.0123, 0.5, 1.0, 59.0, 86400.0])
def test_a_gap_lies_below_the_edge_of_its_bucket_by_at_most_half_an_octave(seconds):
    edge = learned.edge(learned.bucket(seconds))

    assert seconds <= edge <= max(seconds * 2**0.5 * 1.001, 0.0005)


def test_quantiles_are_those_of_the_gaps_within_half_an_octave():
    rng = random.Random(1)
    gaps = [rng.lognormvariate(-2, 1) for _ in range(500)]
    middle, high = quantiles(fed(*gaps), (0.5, 0.99))
    gaps.sort()

    assert gaps[250] <= middle <= gaps[250] * 1.6
    assert gaps[490] <= high <= gaps[495] * 1.6


def test_gaps_added_at_once_count_as_if_added_one_by_one():
    one_by_one = fed(*[0.1] * 300)
    at_once = add_gaps(Baseline(), 0.1, 299.0, LIMITS, count=300)

    assert at_once.count == one_by_one.count
    assert at_once.weight == pytest.approx(one_by_one.weight)
    assert at_once.buckets == pytest.approx(one_by_one.buckets)


def test_old_gaps_weigh_half_after_a_half_life():
    base = add_gaps(Baseline(), 1.0, 0.0, LIMITS, count=1000)
    base = add_gaps(base, 0.001, 1.0, LIMITS, count=2048)
    old, new = base.buckets[learned.bucket(1.0)], base.buckets[learned.bucket(0.001)]

    assert old / new == pytest.approx(1000 / 2048 * 0.5 / 0.72, rel=0.25)


def test_a_regime_that_lasts_becomes_the_normal_one():
    base = add_gaps(Baseline(), 0.01, 0.0, LIMITS, count=5000)
    base = add_gaps(base, 1.0, 1.0, LIMITS, count=5000)

    assert quantiles(base, (0.5,))[0] >= 1.0


def test_the_longest_of_an_hour_is_forgotten_after_two():
    base = add_gaps(Baseline(), 50.0, 10.0, LIMITS)
    assert learned.recent(base) == 50.0
    base = add_gaps(base, 1.0, 3700.0, LIMITS)
    assert learned.recent(base) == 50.0
    base = add_gaps(base, 1.0, 7400.0, LIMITS)

    assert learned.recent(base) == 1.0
    assert base.longest == 50.0


def test_a_million_gaps_take_no_more_room_than_a_thousand():
    rng = random.Random(2)
    base = Baseline()
    sizes = []
    for step in range(20_000):
        base = add_gaps(base, rng.lognormvariate(-3, 2), float(step), LIMITS, count=rng.randrange(1, 100))
        if step in (1000, 19_999):
            sizes.append(len(msgspec.msgpack.encode(base)))

    assert len(base.buckets) <= learned.BUCKETS
    assert sizes[0] < sizes[1] < 700
    assert base.weight < 1e13


def test_a_visible_compile_unsettles_the_busy_classes_for_a_while():
    base = add_runs(fed(0.1), Runs(work=3.0), 3.0, LIMITS)
    assert base.unsettled == LIMITS.burst_gaps

    assert add_gaps(base, 0.1, 2.0, LIMITS, count=200).unsettled == 0


def test_the_share_of_idleness_follows_what_the_gaps_look_like():
    base = fed(*[10.0] * 20)
    for _ in range(40):
        base = add_runs(base, Runs(deadlock=9.0), 10.0, LIMITS)

    assert base.idle_share == pytest.approx(0.9, abs=0.15)
