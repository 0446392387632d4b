"""One training before the detector alone: it is read as often as the detector wants, and nothing is decided."""

from __future__ import annotations

from typing import Self

from stallguard.core.learned import Learned
from stallguard.core.limits import DetectorLimits
from tests.simulation.program import OWN, SILENCES, Rates
from tests.simulation.simulation import Simulation
from tests.simulation.subjects import OneTraining

LIMITS = DetectorLimits()
TRAINING = Rates(cores=1.0, faults=50.0, census=OWN)


class Alone(Simulation):
    """A training that has begun, with batches of `batch` seconds; its threads are deadlocked when it is silent."""

    def __init__(self, limits: DetectorLimits = LIMITS, learned: Learned | None = None, batch: float = 0.1) -> None:
        super().__init__(OneTraining(limits, learned), tick=0.0, batch=batch, several=True)
        self.start(rates=TRAINING, stuck_rates=SILENCES["deadlock"])

    def step(self, seconds: float, how: str = "spin") -> Self:
        """Make one step of so many seconds, in which the process tree does what `how` names."""
        began = self.now
        self.silent(seconds, how)
        took = self.now - began
        return self.progress(**(self.training.train(self.now, took, 1) | {"longest": took}))
