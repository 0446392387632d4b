"""What a simulation feeds: the whole core, or the history and the detector of one training without any policy."""

from __future__ import annotations

from typing import Protocol

from stallguard.core import fold, history
from stallguard.core.actions import Action, Launch
from stallguard.core.detection import detector
from stallguard.core.detection.verdict import DetectorState
from stallguard.core.events import Event
from stallguard.core.history import History
from stallguard.core.learned import Learned
from stallguard.core.limits import DetectorLimits, Limits
from stallguard.core.run import Run


class Subject(Protocol):
    """Takes events."""

    def begin(self, now: float) -> list[Action]:
        """Begin at `now`."""
        ...

    def take(self, event: Event) -> list[Action]:
        """Take an event; return what is to be done."""
        ...

    @property
    def detector_state(self) -> DetectorState:
        """The detector's value."""
        ...

    @property
    def history(self) -> History:
        """What is kept of the events."""
        ...

    @property
    def detector_limits(self) -> DetectorLimits:
        """The settings of the detector."""
        ...


class WholeCore:
    """The fold.  `given`: arguments of `fold.begin`."""

    run: Run

    def __init__(self, limits: Limits, **given: object) -> None:
        self.limits, self._given = limits, given

    def begin(self, now: float) -> list[Action]:
        self.run = fold.begin(now, **self._given)
        return [Launch(attempt=1, slices=self.run.current.slices)]

    def take(self, event: Event) -> list[Action]:
        self.run, actions = fold.advance(self.run, event, self.limits)
        return actions

    @property
    def detector_state(self) -> DetectorState:
        return self.run.detector_state

    @property
    def history(self) -> History:
        return self.run.history

    @property
    def detector_limits(self) -> DetectorLimits:
        return self.limits.detector


class OneTraining:
    """The history and the detector of one training: nothing is decided and nothing is done."""

    def __init__(self, limits: DetectorLimits, learned: Learned | None = None) -> None:
        self.detector_limits = limits
        self.detector_state, self.history = detector.start(learned), History()

    def begin(self, now: float) -> list[Action]:
        return [Launch(attempt=1)]

    def take(self, event: Event) -> list[Action]:
        self.history = history.remember(self.history, event)
        self.detector_state = detector.observe(self.detector_state, event, self.detector_limits)
        return []
