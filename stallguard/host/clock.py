"""The two clocks of a machine behind one protocol, and the gaps that they show.

All ages in stallguard are differences of `Clock.monotonic`, which stands still while the machine sleeps on
both systems (CLOCK_UPTIME_RAW on macOS, CLOCK_MONOTONIC on Linux).  This module must not decide what a gap
means.
"""

from __future__ import annotations

from typing import Protocol

GAP = 2.0  # seconds; a shorter difference is scheduling, not sleep


class Clock(Protocol):
    """What measures time for the supervisor: the module `stallguard.host.system`; tests put their own in its place."""

    def monotonic(self) -> float:
        """Return seconds on a clock that stands still while the machine sleeps."""

    def asleep(self) -> float:
        """Return the seconds that the machine has slept since it booted."""


class SleepWatch:
    """Detects, between two ticks, that the machine slept or that we were not allowed to run."""

    def __init__(self, clock: Clock) -> None:
        """Begin now."""
        self._clock = clock
        self._asleep, self._ticked = clock.asleep(), clock.monotonic()

    def tick(self, expected: float) -> tuple[float, str] | None:
        """Return (seconds, "asleep" or "starved") if the last gap was over 2 s, else None.

        `expected`: how long the caller meant to wait since its last tick.
        """
        asleep, now = self._clock.asleep(), self._clock.monotonic()
        slept, late = asleep - self._asleep, now - self._ticked - expected
        self._asleep, self._ticked = asleep, now
        if slept > GAP:
            return slept, "asleep"
        return (late, "starved") if late > GAP else None
