"""When memory runs out: a leak is foreseen, and nothing that only looks like one for a while."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from stallguard.core.memory_ahead import Forecast, forecast

GB = 10**9
CEILING = 32.0 * GB
EVERY = 10.0


def points(of: Callable[[float], float], count: int = 60, low: float = 1.0) -> list[tuple[float, int, int]]:
    """Footprints in GB as points; `low`: the lowest of a point, as a share of the highest."""
    return [(EVERY * n, int(low * of(EVERY * n) * GB), int(of(EVERY * n) * GB)) for n in range(count)]


def of(use: Callable[[float], float], count: int = 60) -> Forecast | None:
    return forecast(points(use, count), CEILING)


def test_a_steady_leak_is_foreseen_to_the_minute() -> None:
    ahead = of(lambda at: 8 + at / 30)  # 2 GB a minute; 27.7 GB after 590 s
    assert ahead is not None
    assert ahead.leaks
    left = (32 * 0.97 - (8 + 590 / 30)) * 30
    assert ahead.earliest == pytest.approx(left, rel=0.02)
    assert ahead.latest == pytest.approx(left, rel=0.02)
    assert ahead.rate == pytest.approx(GB / 30, rel=0.02)


def test_a_leak_that_grows_faster_has_an_early_and_a_late_time() -> None:
    ahead = of(lambda at: 8 + 18 * (at / 590) ** 2)
    assert ahead is not None
    assert ahead.earliest < 0.8 * ahead.latest


@pytest.mark.parametrize(
    "use",
    [
        lambda at: 8.0,
        lambda at: 8 + min(at / 10, 20),  # a cache that is full
        lambda at: 8 if at < 300 else 28,  # one model more
        lambda at: 8 + 20 * (at % 150) / 150,  # a shuffle buffer of each epoch
        lambda at: 8 + 15 * math.log1p(at / 5) / math.log1p(600 / 5),  # an allocator that settles
        lambda at: 8 + at / 6000,  # a log: 0.1 GB
        lambda at: 28 if at % 100 == 50 else 8,  # validations
    ],
    ids=["flat", "cache", "model", "shuffle buffer", "allocator", "log", "validations"],
)
def test_what_levels_off_or_comes_back_is_no_leak(use: Callable[[float], float]) -> None:
    assert of(use) is None


def test_batches_of_random_length_are_no_growth() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        assert of(lambda _: 8 + 20 * dice.random()) is None  # noqa: B023


def test_steps_that_do_not_fit_any_more_can_come_at_any_moment() -> None:
    each = 6.0
    ahead = of(lambda at: 4 + each * (at // 120), 58)  # 28 GB after the fourth step
    assert ahead is not None
    assert ahead.earliest == 0.0
    fits = of(lambda at: 4 + each / 3 * (at // 120), 58)
    assert fits is None or fits.earliest > 300


def test_steps_that_need_more_and_more_are_no_leak() -> None:
    growing = [(EVERY * n, 5 * GB, int((8 + n / 3) * GB)) for n in range(60)]
    ahead = forecast(growing, CEILING)
    assert ahead is not None
    assert not ahead.leaks


def test_nothing_is_said_of_a_time_longer_than_was_watched() -> None:
    assert of(lambda at: 8 + at / 100) is None  # full in 39 min, watched for 10
    assert of(lambda at: 8 + at / 100, 130) is not None


def test_a_footprint_below_the_highest_so_far_is_no_growth() -> None:
    refilled = points(lambda at: 8 + at / 40)
    assert forecast(refilled, CEILING, mark=25 * GB) is None
    assert forecast(refilled, CEILING) is not None


def test_too_little_is_known_of_a_beginning() -> None:
    assert of(lambda at: 8 + at / 3, 5) is None
    assert forecast([], CEILING) is None
    assert forecast(points(lambda at: at), 0.0) is None
