"""A clock whose hands are set by the test."""

from __future__ import annotations


class Hands:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def asleep(self) -> float:
        return self.slept
