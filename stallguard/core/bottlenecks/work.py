"""What is known of one training's time: its profile, how it went since the beginning, and sums over both.

Times are seconds.  "unknown" is None, never zero.  This module must not conclude anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from stallguard.core.events import Heartbeat
from stallguard.core.history import History, Stage
from stallguard.core.profile import FEEDER, PAUSED, TRAINING, Profile, Spot

TRACING = ("tracing", "first run")
CHECKING = ("validation", "prediction")
STALLED = 0.5  # of the time between two stages, from which it is no example of the training
BATCHES = ("step", "between", "input")  # phases in which batches are trained


class Work(msgspec.Struct, frozen=True):
    """A training so far.  `stages`: at each profile, the oldest first; the last one is the present."""

    history: History
    stages: tuple[Stage, ...]

    @property
    def profile(self) -> Profile:
        """Where the time went since the training began."""
        return self.stages[-1].profile

    @property
    def heartbeat(self) -> Heartbeat:
        """The newest record."""
        return self.stages[-1].heartbeat

    @property
    def total(self) -> float:
        """The seconds that the samples cover, without stalls and without the probe's own work."""
        return self.profile.watched

    def phases(self, names: Iterable[str]) -> float:
        """Return the time of the training thread in some phases."""
        return sum(self.profile.phases.get(name, 0.0) for name in names)

    def spots(self, role: str, which: Callable[[Spot], bool] = lambda _spot: True) -> list[Spot]:
        """Return the places of the script in which a thread of `role` spent time, most time first."""
        spots = (spot for spot in self.profile.spots if spot.phase not in PAUSED)
        return [spot for spot in spots if spot.role == role and spot.file and which(spot)]

    def of_training(self, which: Callable[[Spot], bool] = lambda _spot: True) -> list[Spot]:
        """Return the places of the training thread."""
        return self.spots(TRAINING, which)

    def of_feeders(self) -> list[Spot]:
        """Return the places of other threads in which a library called the script for data."""
        return self.spots(FEEDER, lambda spot: spot.feeds)

    def cores(self) -> float | None:
        """Return how many cores the tree used on average since the first stage; None if that is not known."""
        return self._rate(lambda stage: stage.cpu)

    def system(self) -> float | None:
        """Return how many of them the system's own work took: faults, reads and writes."""
        return self._rate(lambda stage: stage.system)

    def queue(self) -> float | None:
        """Return how many of its threads waited for a core on average since the first stage."""
        return self._rate(lambda stage: stage.run_queue)

    def faults(self) -> float | None:
        """Return its page-ins a second since the first stage."""
        return self._rate(lambda stage: stage.major_faults)

    def throttled(self) -> float | None:
        """Return the share of the time since the first stage in which a quota kept the tree from running."""
        return self._rate(lambda stage: stage.throttled)

    def _rate(self, counter: Callable[[Stage], float | None]) -> float | None:
        """Return how fast a counter rose between the first and the last stage that know it."""
        known = [(stage, value) for stage in self.stages if (value := counter(stage)) is not None]
        passed = rise = 0.0
        for (one, before), (later, after) in pairwise(known):
            span = later.at - one.at
            if (
                later.profile.paused - one.profile.paused < STALLED * span
            ):  # else a stall, of which it would be the rate
                passed, rise = passed + span, rise + after - before
        return max(0.0, rise) / passed if passed > 0 else None


def seconds(spots: Sequence[Spot]) -> float:
    """Return the time of some places together."""
    return sum(spot.seconds for spot in spots)


def heaviest(spots: Sequence[Spot]) -> Spot | None:
    """Return the place to name: of the function with the most time, the line with the most time; None if there is none.

    Places of one line in several phases count together.
    """
    functions: dict[tuple[str, str], float] = defaultdict(float)
    lines: dict[tuple[str, str, int], float] = defaultdict(float)
    for spot in spots:
        functions[spot.file, spot.function] += spot.seconds
        lines[spot.file, spot.function, spot.line] += spot.seconds
    if not lines:
        return None
    best = max(lines, key=lambda line: (functions[line[:2]], lines[line]))
    return next(spot for spot in spots if (spot.file, spot.function, spot.line) == best)
