"""Sleep and starvation, told from two clocks."""

from __future__ import annotations

from stallguard.host.clock import SleepWatch


class Hands:
    """A clock whose hands are set by the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 5.0

    def monotonic(self) -> float:
        return self.now

    def asleep(self) -> float:
        return self.slept


def test_a_machine_that_slept_is_reported_once_with_its_seconds() -> None:
    clock = Hands()
    watch = SleepWatch(clock)
    clock.now, clock.slept = 100.25, 3605.0
    assert watch.tick(0.25) == (3600.0, "asleep")
    clock.now += 0.25
    assert watch.tick(0.25) is None


def test_a_supervisor_that_was_not_run_is_starved_not_asleep() -> None:
    clock = Hands()
    watch = SleepWatch(clock)
    clock.now += 8.25
    assert watch.tick(0.25) == (8.0, "starved")


def test_small_delays_and_long_waits_are_no_gap() -> None:
    clock = Hands()
    watch = SleepWatch(clock)
    clock.now, clock.slept = clock.now + 31.5, clock.slept + 1.0
    assert watch.tick(30.0) is None
