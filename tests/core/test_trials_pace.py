"""The pace of a training from the records of its probe: what is left out, what is not, and how uncertain it is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import pytest

from stallguard.core.events import Heartbeat
from stallguard.core.trials import MOST, BeatTimes, Interval, Pace, mean_over, pace, rate_over


def measured(records: Iterable[Heartbeat]) -> Pace:
    beats = BeatTimes()
    for record in records:
        beats.take(record)
    found = pace(beats.intervals)
    assert found is not None
    return found


def record(at: float, beats: int, **changes: object) -> Heartbeat:
    return Heartbeat(at=at, attempt=1, **{"beats": beats, "beat_at": at, "phase": "step", **changes})  # type: ignore[arg-type]


def steps(times: Iterable[float], at: float = 100.0) -> list[Heartbeat]:
    """A record after each batch; `times`: seconds that each batch after the first takes."""
    return [record(end, number) for number, end in enumerate(accumulate(times, initial=at), start=1)]


def test_an_even_training_has_its_pace_without_spread() -> None:
    found = measured(steps([0.02] * 64))
    assert found.rate == pytest.approx(50)
    assert found.spread == pytest.approx(0, abs=1e-6)
    assert (found.batches, found.is_mixed) == (64, False)


def test_records_that_miss_batches_and_records_without_a_new_one_change_nothing() -> None:
    every = steps([0.02] * 64)
    repeated = [one for one in every[::5] for _ in range(3)]
    assert measured(repeated).rate == pytest.approx(50)


def test_a_graph_that_is_traced_validation_and_checkpoints_are_no_part_of_the_pace() -> None:
    def line(at: float) -> list[Heartbeat]:
        traced = [record(at, 1), record(at + 8.0, 2, traces=1), *steps([0.02] * 40, at + 8.02)]
        traced = traced[:2] + [record(one.at, one.beats + 2, traces=1) for one in traced[2:]]
        end, beats = traced[-1].at, traced[-1].beats
        validated = [record(end + 5.0, beats + 1, traces=1, checks=30)]
        validated += [record(end + 5.0 + 0.02 * n, beats + 1 + n, traces=1, checks=30) for n in range(1, 40)]
        end, beats = validated[-1].at, validated[-1].beats
        saved = [record(end + 3.0 + 0.02 * n, beats + 1 + n, traces=1, checks=30, saves=1) for n in range(40)]
        return traced + validated + saved

    found = measured(line(100.0))
    assert found.rate == pytest.approx(50, rel=0.01)
    assert not found.is_mixed
    assert found.batches < 122, "their batches are left out with their time"


def test_a_pause_whose_counter_moved_before_the_record_is_known_by_its_phase() -> None:
    records = [*steps([0.02] * 40), record(105.0, 42, phase="checkpoint")]
    records += [record(108.0 + 0.02 * n, 43 + n) for n in range(40)]
    assert measured(records).rate == pytest.approx(50, rel=0.01)


def test_epochs_too_short_to_separate_validation_are_measured_with_it_and_that_is_known() -> None:
    found = measured([record(100 + 0.05 * n, 1 + 4 * n, checks=2 * n) for n in range(100)])
    assert found.is_mixed
    assert found.rate == pytest.approx(80)


@pytest.mark.parametrize("slow", [1, 7, 20])
def test_a_warm_up_is_left_out(slow: int) -> None:
    found = measured(steps([0.2] * slow + [0.02] * 100))
    assert found.rate == pytest.approx(50, rel=0.02)


def test_a_training_that_gets_slower_keeps_its_second_half() -> None:
    found = measured(steps([0.02] * 50 + [0.04] * 50))
    assert found.rate == pytest.approx(25, rel=0.05)
    assert found.batches >= 50


def test_the_spread_is_that_of_stretches_so_more_batches_make_it_smaller() -> None:
    uneven = [0.01, 0.03, 0.02, 0.05, 0.01]
    few, many = measured(steps(uneven * 8)), measured(steps(uneven * 100))
    assert few.spread is not None
    assert many.spread is not None
    assert 0 < many.spread < few.spread


def test_without_two_batches_there_is_no_pace() -> None:
    assert pace(()) is None
    one = measured(steps([0.5]))
    assert (one.rate, one.spread) == (pytest.approx(2), None)


def test_a_long_trial_takes_bounded_memory_and_keeps_its_pace() -> None:
    beats = BeatTimes()
    for one in steps([0.02] * (2 * MOST + 10)):
        beats.take(one)
    assert len(beats.intervals) <= MOST
    found = pace(beats.intervals)
    assert found is not None
    assert (found.batches, found.rate) == (2 * MOST + 10, pytest.approx(50))


def test_a_level_is_weighted_by_time_and_one_that_was_not_read_is_unknown() -> None:
    assert mean_over([(0.0, 0.0), (1.0, 100.0), (9.0, 100.0)], 0.0, 9.0) == pytest.approx((50 + 800) / 9)
    assert mean_over([(0.0, 7.0), (5.0, 9.0)], 4.0, 9.0) == 9.0
    assert mean_over([(0.0, 7.0)], 4.0, 9.0) is None


def test_a_counter_needs_two_readings_for_a_rate() -> None:
    assert rate_over([(0.0, 10.0), (2.0, 13.0), (4.0, 16.0)], 1.0, 5.0) == pytest.approx(1.5)
    assert rate_over([(2.0, 13.0)], 1.0, 5.0) is None


def test_intervals_are_kept_apart_by_what_fell_into_them() -> None:
    beats = BeatTimes()
    for one in (record(1.0, 1), record(2.0, 3), record(4.0, 4, fits=1)):
        beats.take(one)
    assert beats.intervals == (Interval(1.0, 2.0, 2), Interval(2.0, 4.0, 1, is_plain=False))
