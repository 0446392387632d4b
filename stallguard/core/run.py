"""The state of a run as one value, and small questions about it.

A `Run` has what outlives an attempt, an `Attempt` what does not, and a `Training` is a process that trains, or may
begin to, with its own history and detector.  This module must not change a run; core.fold does.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from stallguard.core import lifecycle
from stallguard.core.detection.verdict import DetectorState
from stallguard.core.events import Heartbeat
from stallguard.core.history import History
from stallguard.core.learned import BatchSizes, Learned
from stallguard.core.ledger import Ledger
from stallguard.core.policy import NOTHING, AttemptHistory, Position, position
from stallguard.core.verdicts import Decision, Finding

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


class Review(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was announced already in the present attempt, so that it is announced once.

    `at`: monotonic seconds of the last diagnosis.
    """

    at: float = 0.0
    slow: bool = False
    announced: tuple[str, ...] = ()  # causes, and kinds of bottleneck


class MemoryWatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done in the present attempt before its memory runs out.  Times: seconds on the supervisor's clock."""

    at: float = 0.0  # of the last look
    is_near: bool = False  # readings are wanted as they come
    announced: bool = False
    others_announced: bool = False  # that other processes take the memory
    left_alone: bool = False  # it was announced why the training is not started again
    asked: float = -math.inf  # when the probe was asked for a checkpoint
    saves: int = 0  # checkpoints by then
    looked: float = -math.inf  # when it was last looked whether memory is short (core.caches)
    emptied: float = -math.inf  # when the probe was asked to empty caches
    # Of the last attempt that was ended for its memory: footprint when it began and ended (bytes), bytes a second.
    grown: tuple[int, int, float] | None = None


class Unsaved(msgspec.Struct, frozen=True):
    """A process of which no checkpoint can be written now."""

    pid: int
    why: str
    since: float  # what was trained from then on is in no checkpoint (monotonic seconds)
    is_kept: bool  # there is an earlier checkpoint


class Totals(msgspec.Struct, frozen=True):
    """Counts over all attempts."""

    beats: int = 0  # batches of trainings that are over, in all attempts
    incidents: int = 0  # stalls
    crashes: int = 0  # attempts that ended by themselves, with another code than 0, and outside of a stall
    given_back: int = 0  # bytes of emptied caches


class Attempt(msgspec.Struct, frozen=True):
    """What belongs to one attempt: it is made anew at each launch.

    `trainings`: first the run as it is seen from outside, then each process that a probe is in, the newest last.
    """

    trainings: tuple[Training, ...]
    number: int = 0  # from 1; 0: none was launched yet
    pid: int = 0
    launched: float = 0.0
    slices: int = 1
    device: str = "default"
    focus: int = OUTSIDE  # key of the training that evidence, diagnosis and reports are about
    seen: int = 0  # processes with a probe so far
    begun: int = 0  # how many of them have trained
    over: tuple[EndedTraining, ...] = ()  # the trainings that are over, the newest last
    cut: bool = False  # batches of some model were trained in slices
    urgent: bool = False  # the output reported a cause that only gets worse: act even while batches end
    step: str = "off"  # the judgement's step after the event before this one; while evidence is collected, of the stall
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None  # what follows its end
    declined: float = -math.inf  # when the policy last decided to leave this stall alone
    still: float = math.inf  # when SIGTERM was sent, if all that trained had stalled by then
    kill_deferred: float = 0.0  # since when a checkpoint that is being written holds SIGKILL back
    arranged: bool = False  # the decision is an end at a set time; the training can end before it
    stop_acknowledged: bool = False  # the probe has asked the framework to end after the batch
    saved: tuple[int, ...] = ()  # pids of trainings that were saved for the end, and wait for SIGTERM
    review: Review = Review()
    memory: MemoryWatch = MemoryWatch()
    interrupts: int = 0
    # When the first interrupt was passed on, and the batches until then.
    interrupted: tuple[float, int] | None = None
    passed_on: tuple[int, ...] = ()  # numbers of the signals that were passed on
    unsaved: tuple[Unsaved, ...] = ()
    loops: dict[int, float] = {}  # since when each process trains in a loop of its own (monotonic seconds)
    tracks: dict[int, str] = {}  # the lines that would have that loop saved, with the names of its variables
    # Exit code with which the script ended by itself; None: it was ended, or its end is not known.
    script_code: int | None = None
    foreign: bool = False  # as in events.Launched
    blind: bool = False  # as in events.Launched


class Run(msgspec.Struct, frozen=True):
    """A run at one instant.  `deadline`: when the wait in the present state is over (monotonic seconds)."""

    current: Attempt  # the present attempt; between two attempts the one that ended
    past: AttemptHistory
    inherited: Learned | None = None  # what earlier runs of the same command learned
    learned: dict[str, Learned] = {}  # what the trainings of earlier attempts learned, by place
    state: str = lifecycle.NEW
    now: float = 0.0
    began: float = 0.0
    ended: float = 0.0  # when the attempt before this one ended
    sizes: BatchSizes = BatchSizes()  # which batches this script survives here
    changes: tuple[tuple[int, str], ...] = ()  # of the training: attempt, sentence
    whole: str = ""  # why slices cannot make this script's batch smaller, as the probe said it
    deadline: float = math.inf
    silent_since: float = 0.0  # when the gap of the last stall began (monotonic seconds)
    beyond: tuple[str, ...] = ()  # what a remedy cannot reach in this script, already announced
    own_backup: bool = False  # the script makes backups of its own, from which it resumes
    quiet_until: float = 0.0  # muted by the user: judged, never acted upon
    totals: Totals = Totals()
    ledger: Ledger = Ledger()  # where the time went
    code: int = 0

    @property
    def training(self) -> Training:
        """The training in focus."""
        return next(one for one in self.current.trainings if one.key == self.current.focus)

    @property
    def history(self) -> History:
        """The history of the training in focus."""
        return self.training.history

    @property
    def detector_state(self) -> DetectorState:
        """The detector of the training in focus."""
        return self.training.detector_state


def with_attempt(run: Run, **changes: object) -> Run:
    """Return the run with changes of its present attempt."""
    return replace(run, current=replace(run.current, **changes))


def beats(run: Run) -> int:
    """Return the batches trained so far, of all trainings and attempts together."""
    return run.totals.beats + sum(training.batches for training in run.current.trainings if not training.over)


def counted_batches(run: Run) -> int | None:
    """Return the batches of all attempts; None if nothing could count them: a process is watched from outside."""
    done = beats(run)
    return None if run.current.blind and not done else done


def is_muted(run: Run) -> bool:
    """Return whether the user asked to be left alone for now."""
    return run.now < run.quiet_until


def is_loop(heartbeat: Heartbeat) -> bool:
    """Return whether a training is no fit of Keras, which the probe can save, cut and end.

    The fits of a library that trains by torch (Lightning) are counted as fits too.
    """
    return heartbeat.fits == 0 or heartbeat.source == "torch"
