"""The watched clock runs only while somebody watches."""

from __future__ import annotations

from stallguard.core.detection import verdict
from stallguard.core.detection.verdict import WatchedClock
from stallguard.core.limits import DetectorLimits

LIMITS = DetectorLimits()


def run(*times: float) -> WatchedClock:
    clock = WatchedClock()
    for at in times:
        clock, _ = verdict.advance_clock(clock, at, LIMITS)
    return clock


def test_it_runs_with_the_events_that_come_in_time():
    assert run(100.0, 100.25, 101.0, 101.9).now == 101.9 - 100.0


def test_an_hour_without_events_counts_a_second():
    assert run(100.0, 3700.0).now == 1.0


def test_a_pause_opens_a_grace_and_a_late_tick_does_not():
    assert run(0.0, 1.5).grace == 0.0
    assert run(0.0, 8.0).grace == 1.0 + LIMITS.grace
    assert verdict.advance_clock(run(0.0), 8.0, LIMITS)[1] is True


def test_time_that_runs_backwards_adds_nothing_and_the_latest_reading_holds():
    back = run(0.0, 1.0, 0.2)

    assert (back.now, back.at) == (1.0, 1.0)
    assert run(0.0, 1.0, 0.2, 1.5).now == 1.5
