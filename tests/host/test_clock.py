"""Sleep and starvation, told from two clocks."""

from __future__ import annotations

import sys
import time

import pytest

from stallguard.host.clock import SleepWatch, SystemClock


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


def test_the_machines_own_clocks_agree_with_pythons() -> None:
    clock = SystemClock()
    assert time.monotonic() - 0.01 <= clock.monotonic() <= time.monotonic() + 0.01
    assert clock.asleep() >= 0
    assert abs(clock.asleep() - clock.asleep()) < 0.1


@pytest.fixture
def mac_of_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac whose Python counts sleep in `time.monotonic`."""
    clocks = {8: 100.5, 4: 4000.0}
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(time, "CLOCK_UPTIME_RAW", 8, raising=False)
    monkeypatch.setattr(time, "CLOCK_MONOTONIC_RAW", 4)
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: int(clocks[which] * 1e9))
    monkeypatch.setattr(time, "monotonic", lambda: 4000.0)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 4000 * 10**9)
