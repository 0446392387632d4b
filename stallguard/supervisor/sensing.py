"""The sensors of a run, and how closely they look; made after the child is started.  Must not judge what they see."""

from __future__ import annotations

from collections.abc import Mapping

from stallguard.core import trainings
from stallguard.core.limits import DetectorLimits
from stallguard.core.memory_ahead import CLOSE
from stallguard.core.run import Run
from stallguard.sensors import SensedTraining, Sensor, Target
from stallguard.sensors.log_matcher import Matcher
from stallguard.sensors.sampler import Samplers
from stallguard.sensors.sensor_registry import sensors
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.output.matching import Matching


class SensorThreads:
    """Starts the sensors of a run, and has them look closer if a detector wants that."""

    def __init__(
        self, context: RunContext, target: Target, matching: Matching, periods: Mapping[str, float]
    ) -> None:
        """`target`: what the sensors look at; `matching`: searches the output.

        `periods`: seconds between two readings of single sensors, by name, in place of their own.
        """
        self._periods = periods
        self._context, self._target, self._matching = context, target, matching
        self._samplers: Samplers | None = None
        self._memory: Sensor | None = None
        self._memory_period = 0.0
        self._tuned: tuple[Run | None, DetectorLimits | None] = (None, None)  # what the sensors are tuned to

    def start(self) -> None:
        """Begin to look."""
        self._matching.begin(Matcher())
        watched = sensors(self._target, self._context.clock, self._report)
        for sensor in watched:
            sensor.period = self._periods.get(sensor.name, sensor.period)
            if sensor.name == "memory":
                self._memory, self._memory_period = sensor, sensor.period
        self._samplers = Samplers(watched, self._context.mailbox.post, self._context.clock, self._report)
        self._samplers.start()

    def _report(self, name: str, error: Exception) -> None:
        self._context.reporter.note("sensor", f"the sensor {name} does not work here: {error}")

    def tune(self, run: Run) -> None:
        """Have the sensors look closer at what a detector wants to see closer."""
        limits = self._context.settings.config.detector
        if self._samplers is None or (self._tuned[0] is run and self._tuned[1] is limits):
            return
        self._tuned = (run, limits)
        wanted = trainings.wanted(run, limits)
        self._samplers.urgent(any(want.period < 1.0 for _, want in wanted))
        if self._memory is not None:
            self._memory.period = (
                min(CLOSE, self._memory_period) if run.current.memory.is_near else self._memory_period
            )
        target, greeted = self._target, run.history.greeted
        target.main, target.probe_threads = (greeted.pid, greeted.threads) if greeted else (None, ())
        target.census_wanted = any(want.census for _, want in wanted)
        target.trainings = tuple(
            SensedTraining(
                training.pid, training.history.greeted.threads if training.history.greeted else (),
                period=want.period, census=want.census,
            )
            for training, want in wanted if training.trains
        )  # fmt: skip

    def close(self) -> None:
        """End the sensors."""
        if self._samplers is not None:
            self._samplers.close()
