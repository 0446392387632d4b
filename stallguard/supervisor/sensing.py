"""The sensors of a run, and how closely they look; made once the child runs.  Must not judge what they see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallguard.core import trainings
from stallguard.core.run import Run
from stallguard.sensors import Training
from stallguard.sensors.log_matcher import Matcher
from stallguard.sensors.sampler import Samplers
from stallguard.sensors.sensor_registry import sensors

if TYPE_CHECKING:
    from stallguard.supervisor.session import Session


class Watching:
    """Starts the sensors of a session, and has them look closer where a detector wants to."""

    def __init__(self, session: Session) -> None:
        """Look at nothing yet."""
        self._session = session
        self._samplers: Samplers | None = None

    def start(self) -> None:
        """Begin to look."""
        session = self._session
        failed = session.performer.sensor_failed
        session.matching.begin(Matcher())
        watched = sensors(session.launcher.target, session.clock, failed)
        self._samplers = Samplers(watched, session.mailbox.post, session.clock, failed)
        self._samplers.start()

    def tune(self, run: Run) -> None:
        """Have the sensors look closer at what a detector wants to see closer."""
        if self._samplers is None:
            return
        session = self._session
        wanted = trainings.wanted(run, session.loop.limits.detector)
        self._samplers.urgent(any(want.period < 1.0 for _, want in wanted))
        session.launcher.look(run.now)
        session.surroundings.look(run)
        target, greeted = session.launcher.target, run.history.greeted
        target.main, target.probe_threads = (greeted.pid, greeted.threads) if greeted else (None, ())
        target.census_wanted = any(want.census for _, want in wanted)
        target.trainings = tuple(
            Training(
                training.pid, training.history.greeted.threads if training.history.greeted else (),
                close=want.period < 1.0, census=want.census,
            )
            for training, want in wanted if training.trains
        )  # fmt: skip

    def close(self) -> None:
        """End the sensors."""
        if self._samplers is not None:
            self._samplers.close()
