"""What goes on beside a run: its sensors; what keeps the machine awake; the settings files, the time, the directory.

A run is to end at a time of day by the clock on the wall, or after a length of time by the run's own.  These times are
local and without an offset, so that 07:30 is 07:30 in the night of a clock change too.

`SensorThreads` starts the sensors and says how closely they look.  `HeldOutput` notices that nothing takes the
training's output, so that a training that waits for its reader is not judged.  Ctrl-S on a terminal, or a pager that is
not read: when the line to stallguard is full, the training stands still in its next line of output, as without
stallguard.  Until then it goes on, and what stops it is a stall.

Must not fail a run, delay its start or judge: it begins after the child does.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stallguard import awake, units
from stallguard.config.table import RunSettings
from stallguard.core import trainings
from stallguard.core.events import Event, OutputHeld, UserCommand
from stallguard.core.limits import DetectorLimits
from stallguard.core.memory_ahead import CLOSE
from stallguard.core.messages import duration
from stallguard.core.run import Run
from stallguard.sensors import SensedTraining, Sensor, Target
from stallguard.sensors.log_matcher import Matcher
from stallguard.sensors.sampler import Samplers
from stallguard.sensors.sensor_registry import sensors
from stallguard.storage import run_files
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.output import Matching, OutputCarrier
from stallguard.supervisor.sockets import identity
from stallguard.worker import REFUSALS, Worker

if TYPE_CHECKING:
    from stallguard.config.watch import FilesWatch
    from stallguard.supervisor.followed_output import FollowedOutput
    from stallguard.supervisor.output_log import OutputFile

LOOK_EVERY = 1.0  # seconds between two looks at the clock on the wall
ASK_EVERY = 30.0  # seconds between two looks at what keeps the machine awake
OPENS = 1.0  # seconds that the end of a run waits for a watch that is being opened

NAME_EVERY = 5.0  # seconds between two tries to write which process guards the run
HELD = 1.0  # seconds for which the reader must have taken nothing; while one is slow, each chunk takes less
# Seconds between two events; a gap of 2.5 s is the shortest that is judged (DetectorLimits.near).
HELD_EVERY = 2.0
A_DAY = dt.timedelta(days=1)


class Surroundings:
    """Of one run, from `open` to `close`."""

    def __init__(self, context: RunContext) -> None:
        """Note when the run began and which directory it has."""
        self._context = context
        self._directory = identity(context.directory.path)
        asked_for = run_files.asked(context.directory)
        self._began = local_time(asked_for.began if asked_for else run_files.utc())
        self._awake: awake.Awake | None = None
        self._display: awake.DisplaySleep | None = None
        self._watch: FilesWatch | None = None
        self._opening: Worker | None = None
        self._looked = self._asked = 0.0
        self._said: set[str] = set()
        self._is_due = False  # the run was asked to end because its time is over

    def open(self) -> None:
        """Begin to keep the machine awake and to watch the settings files."""
        if not self._context.settings.config.run.let_sleep:
            self._awake = awake.Awake(awake.plan(os.getpid()))
            self._note_once("awake", self._awake.words)
        if self._context.settings.config.run.display_sleep:
            self._display = awake.DisplaySleep()
            if self._display.words:
                self._note_once("awake", self._display.words)
        settings = self._context.settings
        if settings.load is None:
            return
        from stallguard.config.watch import FilesWatch

        one_at_a_time = threading.Lock()  # the watch calls from a thread of its own

        def changed() -> None:
            with one_at_a_time:
                changes = settings.renew()
            for text in changes:
                self._context.reporter.note("settings", text)

        def watch() -> None:
            self._watch = FilesWatch(settings.loaded.files, changed)
            changed()  # what was changed after the run read the settings and before the watch began

        # The library starts threads of its own, which can wait for ever: worker.py.
        self._opening = Worker(watch, "settings")
        with contextlib.suppress(*REFUSALS):
            self._opening.start()

    def look(self, run: Run) -> None:
        """Look now and then at the time, the run's directory and what keeps the machine awake; deciding thread."""
        # Not the run's clock, which stands still while its events are summed up.
        now = self._context.clock.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked = now
            wall = dt.datetime.now()  # noqa: DTZ005 - local
            why = reason_to_end(self._context.settings.config.run, self._began, wall, now - run.began)
            if why and not self._is_due:
                self._context.mailbox.post(UserCommand(at=now, verb="finish", argument=why))
            self._is_due = bool(why)
            path = self._context.directory.path
            if identity(path) != self._directory:  # gone, or made again by one of our own writers
                text = f"the run's directory {path} was removed: from now on nothing of the run is kept"
                self._note_once("trouble", text)
            said = self._display.look(run.history.attempt, run.training.batches) if self._display is not None else ""
            if said:
                self._context.reporter.note("awake", said)
        if now - self._asked < ASK_EVERY:
            return
        self._asked = now
        if self._awake is None:
            return
        seen = run.history.machine
        for text in awake.warnings(seen[-1].reading if seen else None):
            self._note_once("trouble", text)
        trouble = self._awake.trouble()
        if trouble is not None:
            # A Linux machine that trains rarely sleeps, and most that have no session manager never do.
            self._note_once("trouble" if sys.platform == "darwin" else "awake", trouble)

    def _note_once(self, kind: str, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._context.reporter.note(kind, text)

    def close(self) -> None:
        """Let the machine sleep, and stop watching."""
        if self._opening is not None:
            self._opening.join(OPENS)
        if self._watch is not None:
            self._watch.close()
        if self._awake is not None:
            self._awake.close()


def reason_to_end(settings: RunSettings, began: dt.datetime, now: dt.datetime, elapsed: float) -> str:
    """Return why a run that began at `began` is to end now; "" if it is not.

    `elapsed`: seconds that it has lasted by its own clock, which no change of the wall's moves.
    """
    if settings.stop_at and now >= next_time_of_day(settings.stop_at, began):
        return f"it is {settings.stop_at}"
    if elapsed >= settings.max_time:
        return f"{duration(settings.max_time)} have passed"
    return ""


def next_time_of_day(time: str, began: dt.datetime) -> dt.datetime:
    """Return the first moment after `began` at which it is `time` of day, as HH:MM."""
    hour, minute = units.clock(time)
    today = began.replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today > began else today + A_DAY


def local_time(utc: str) -> dt.datetime:
    """Return a time of run.json as the clock on the wall showed it."""
    return dt.datetime.fromisoformat(utc).astimezone().replace(tzinfo=None)


class SensorThreads:
    """Starts the sensors of a run, and has them look closer if a detector wants that."""

    def __init__(self, context: RunContext, target: Target, matching: Matching, periods: Mapping[str, float]) -> None:
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
        self._samplers.urgent(any(want.closely for _, want in wanted))
        if self._memory is not None:
            self._memory.period = min(CLOSE, self._memory_period) if run.current.memory.is_near else self._memory_period
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


class SupervisorName:
    """Writes to run.json which process guards the run, and where its control socket is.

    Else the run looks as if stallguard had been killed, and a verb cannot reach it.  So it is written later if the disk
    refuses.
    """

    def __init__(self, context: RunContext, control: Path) -> None:
        """`control`: path of the socket."""
        self._directory, self._now = context.directory, context.clock.monotonic
        self._control, self._is_written, self._tried = control, False, 0.0

    def write(self) -> None:
        """Write it, unless the disk refuses."""
        self._tried = self._now()
        with contextlib.suppress(OSError):
            asked_for = run_files.asked(self._directory)
            if asked_for is not None:
                who = run_files.identity(os.getpid())
                named = msgspec.structs.replace(asked_for, supervisor=who, control=str(self._control))
                run_files.write(self._directory.asked, named)
            self._is_written = True

    def look(self, _run: Run) -> None:
        """Write it now if that was not possible before."""
        if not self._is_written and self._now() - self._tried >= NAME_EVERY:
            self.write()


class HeldOutput:
    """Posts an event every EVERY seconds while the output is held."""

    def __init__(
        self,
        output: OutputCarrier | OutputFile | FollowedOutput,
        post: Callable[[Event], None],
        now: Callable[[], float],
    ) -> None:
        """`now`: the supervisor's clock, seconds."""
        self._output, self._post, self._now = output, post, now
        self._posted = 0.0

    def look(self, _run: object) -> None:
        """Post if the output is held; after each event of the run."""
        now = self._now()
        held = self._output.blocked(now)
        if held >= HELD and now - self._posted >= HELD_EVERY:
            self._posted = now
            self._post(OutputHeld(at=now, seconds=round(held, 1)))
