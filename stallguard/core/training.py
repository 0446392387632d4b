"""One training of a run, as a value: a process that trains, or may begin to, with its own history and detector.

This module must not change anything; core.trainings does.
"""

from __future__ import annotations

import msgspec

from stallguard.core.detection.detector import DetectorState
from stallguard.core.events import Heartbeat
from stallguard.core.history import History
from stallguard.core.policy.attempts import NOTHING, Position, position

OUTSIDE = 0  # key and pid of the run as seen from outside; nothing else exists until a probe reports


class Training(msgspec.Struct, frozen=True):
    """A process of the present attempt.  `key`: its identity; a pid can come again, after an os.execv for one."""

    history: History
    detector_state: DetectorState
    key: int = OUTSIDE
    pid: int = 0
    # Its place among the attempt's trainings, in the order in which they began to train; 0: it has not trained.
    number: int = 0
    began: float = 0.0  # when its probe first reported, seconds on the supervisor's clock
    trains: bool = False  # if not, it can be a launcher
    benched: bool = False  # not judged now: it has not trained, and another process has
    over: str = ""  # how it left; "" while it lives
    announced: bool = False  # its stall was reported during the incident of another

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The newest record of its probe."""
        return self.history.heartbeat

    @property
    def place(self) -> str:
        """Which of the run's processes it is, the same in each attempt; "" if that is not known."""
        return self.history.greeted.place if self.history.greeted else ""

    @property
    def command(self) -> str:
        """What the process runs, as a user would know it."""
        return self.history.greeted.command if self.history.greeted else ""

    @property
    def batches(self) -> int:
        """The batches that it trained in this attempt."""
        return self.heartbeat.beats if self.heartbeat else 0

    @property
    def reached(self) -> Position:
        """How far it got; a training that has ended without an error got further than any other."""
        if self.over == "ended":
            return (1, *position(self.heartbeat)[1:])
        return position(self.heartbeat)


class EndedTraining(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of a training that is over.  `how`: as in events.ProcessLeft; `seconds`: from its first record."""

    number: int
    pid: int
    place: str
    command: str
    batches: int
    fits: int
    seconds: float
    how: str
    reached: Position = NOTHING


def record(training: Training, how: str, now: float) -> EndedTraining:
    """Return what is kept of `training`, which is over since `now`."""
    heartbeat = training.heartbeat
    return EndedTraining(
        number=training.number, pid=training.pid, place=training.place, command=training.command,
        batches=training.batches, fits=heartbeat.fits if heartbeat else 0, seconds=round(now - training.began, 3),
        how=how, reached=msgspec.structs.replace(training, over=how).reached,
    )  # fmt: skip
