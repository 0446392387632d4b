"""What must hold, and whether it does."""

from __future__ import annotations

from typing import NamedTuple


class Goal(NamedTuple):
    """A figure and the most that it may be."""

    name: str
    value: float
    at_most: float

    @property
    def holds(self) -> bool:
        """Whether the figure is known and small enough."""
        return self.value <= self.at_most


def verdict(goals: list[Goal]) -> str:
    """Return the last line of the bench."""
    missed = [goal for goal in goals if not goal.holds]
    if not missed:
        return f"all {len(goals)} goals hold"
    words = "; ".join(f"{goal.name} {goal.value:.3g} > {goal.at_most:g}" for goal in missed)
    return f"{len(missed)} of {len(goals)} goals missed: {words}"
