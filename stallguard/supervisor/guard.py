"""What judges and acts: the parts that are imported and made while the first attempt's interpreter starts.

`HeldOutput` notices that nothing takes the training's output, so that a training that waits for its reader is not
judged.  Ctrl-S on a terminal, or a pager that is not read: when the line to stallguard is full, the training stands
still in its next line of output, as without stallguard.  Until then it goes on, and what stops it is a stall.

Must not decide: the core decides, the loop asks it, the executor acts.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from stallguard.config import Loaded
from stallguard.core import fold
from stallguard.core.actions import Action, Announce, Ask, Collect, Conclude, Launch, Signal
from stallguard.core.events import Event, OutputHeld, UserCommand
from stallguard.core.run import Run
from stallguard.core.shutdown import Step
from stallguard.errors import NOT_FINITE
from stallguard.storage import core_snapshot, private, run_files
from stallguard.storage.journal import Journal
from stallguard.supervisor import conclusion
from stallguard.supervisor.background import Surroundings
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.earlier_runs import EarlierRuns
from stallguard.supervisor.evidence_collector import EvidenceCollector
from stallguard.supervisor.heartbeats import HeartbeatListener
from stallguard.supervisor.launcher import Launcher
from stallguard.supervisor.live_status import LiveStatus, snapshot
from stallguard.supervisor.loop import Loop, OwnHang
from stallguard.supervisor.notifications import Notifications
from stallguard.supervisor.output.matching import Matching
from stallguard.supervisor.output.notices import Terminal
from stallguard.supervisor.run_options import RunOptions
from stallguard.supervisor.sensing import SensorThreads
from stallguard.worker import REFUSALS, Worker

if TYPE_CHECKING:
    from stallguard.supervisor.metrics_file import MetricsFile

NAME_EVERY = 5.0  # seconds between two tries to write which process guards the run

HELD = 1.0  # seconds for which the reader must have taken nothing; while one is slow, each chunk takes less
# Seconds between two events; a gap of 2.5 s is the shortest that is judged (DetectorLimits.near).
HELD_EVERY = 2.0


class Executor:
    """Hands each action of the core to the part that does it.  `why`: why the run ended, once it is concluded.

    No part blocks the deciding thread.  Must not decide anything, not even after an error.
    """

    def __init__(
        self,
        launcher: Launcher,
        beats: HeartbeatListener,
        evidence: EvidenceCollector,
        terminal: Terminal,
        notifications: Notifications,
    ) -> None:
        """Take the parts that act."""
        self._launcher, self._beats, self._evidence = launcher, beats, evidence
        self._terminal, self._notifications = terminal, notifications
        self.why = ""

    def perform(self, action: Action, run: Run) -> None:
        """Do one action."""
        match action:
            case Launch():
                self._launcher.launch(action)
            case Signal():
                self._launcher.signal(action.name, action.number)
            case Ask():  # if no process has a page, the core's deadline leads to a signal
                self._beats.ask(action.command)
            case Collect():
                self._evidence.collect(action, run)
            case Announce():
                self._terminal.announce(action.message, action.facts)
                self._notifications.send(action, run)
            case Conclude():
                self.why = action.why
            case _:  # Found is for the journal alone
                pass


class Guard:
    """Of one run: `begin`, `run` to its end, `conclude`, `close`."""

    def __init__(
        self,
        context: RunContext,
        launcher: Launcher,
        beats: HeartbeatListener,
        matching: Matching,
        earlier: EarlierRuns,
        options: RunOptions,
        reload: Callable[[], Loaded] | None,
    ) -> None:
        """Make the parts.  `reload`: reads the settings anew, None if they are fixed."""
        self._context, self._launcher, self._earlier, self._options = context, launcher, earlier, options
        self._notifications = Notifications(context)
        self._metrics: MetricsFile | None = None
        evidence = EvidenceCollector(context, launcher)
        self._executor = Executor(launcher, beats, evidence, context.terminal, self._notifications)
        self.loop = Loop(context, self._executor.perform)
        self._background = Surroundings(context, reload)
        self._sensing = SensorThreads(context, launcher.target, matching, options.sensor_periods)
        self._is_stopping = False  # options.stop_when has become true
        held = HeldOutput(context.output, context.mailbox.post, context.clock.monotonic)
        self.loop.after = [
            self._sensing.tune,
            launcher.look,
            self._background.look,
            held.look,
            self._stop_if_wanted,
        ]
        self._files = contextlib.ExitStack()  # open until the last error can have been reported
        context.settings.follow(self._notifications.open)

    def _stop_if_wanted(self, run: Run) -> None:
        stop_when = self._options.stop_when
        if stop_when is not None and not self._is_stopping and stop_when(run):
            self._is_stopping = True
            self._context.mailbox.post(UserCommand(at=self._context.clock.monotonic(), verb="stop"))

    def status(self) -> LiveStatus:
        """Return the state of the run for `status`; from any thread."""
        now, newest = self._context.clock.monotonic(), self.loop.newest()
        name, limits = self._context.directory.id, self.loop.limits
        return snapshot(name, newest, now, limits, self._notifications.records)

    def begin(self, first: Launch) -> Step:
        """Return the run as it begins, or as it was left, and the next actions.  `first`: a new run's first launch."""
        limits, earlier = self.loop.limits, self._earlier
        run, _ = fold.begin(limits, self._context.began, first.factor, earlier.learned(), earlier.sizes)
        take_up = self._options.take_up
        left = take_up(self._context, self._launcher, earlier, limits, run) if take_up else None
        return left or (run, [first])

    def run(self, begun: Step, done: Launch | None, failed: Exception | None, control: Path) -> int:
        """Fold events until the run is over; return its exit code.

        `begun`: what `begin` returned; `done`: the launch that is done already; `failed`: an error of ours at that
        launch; `control`: path of the socket.
        """
        self.loop.start(*begun, done)
        name = SupervisorName(self._context, control)
        self.loop.after.append(name.look)
        with self.loop.continue_on_error(f"doing what is next ({Launch.__name__})"):
            if failed is not None:
                raise failed
        self.do_each(
            {
                "opening the journal": self._open_journal,
                "keeping room for its outcome": partial(_keep_room, self._context),
                "opening the file of its own stacks": self._open_stacks,
                "saying where its socket is": name.write,
                "starting the sensors": self._sensing.start,
                "looking after the machine": self._background.open,
                "opening the file of its metrics": self._open_metrics,
                "keeping the probe for later attempts": self._keep_probe,
                "preparing notifications": partial(self._notifications.open, self._context.settings.config),
            }
        )
        return self.loop.until_concluded()

    def _keep_probe(self) -> None:
        """Copy the probe on another thread: a home on a slow file system must not hold up the run."""

        def keep() -> None:
            try:
                self._launcher.probe.keep()
            except OSError as error:
                text = f"no copy of the probe is kept ({error}): later attempts need the installed stallguard"
                self._context.reporter.note("probe", text)

        with contextlib.suppress(*REFUSALS):
            Worker(keep, "probe").start()

    def _open_journal(self) -> None:
        directory, settings = self._context.directory, self._context.settings.config
        journal = Journal(
            directory.journal, self._context.reporter.trouble, settings.keep.journal,
            self._context.clock.monotonic, directory.id,
        )  # fmt: skip
        self._files.callback(journal.close)
        self._context.journal.open(journal)
        if self._options.save_core:
            self.loop.after.append(core_snapshot.SnapshotSaver(directory, journal).look)

    def _open_metrics(self) -> None:
        textfile = self._context.settings.config.metrics.textfile
        if not textfile:
            return
        from stallguard.supervisor.metrics_file import MetricsFile

        path = self._context.request.cwd / Path(textfile).expanduser()
        self._metrics = MetricsFile(path, self.status, self._context.reporter.trouble)
        self._metrics.open()

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close(self._context.current.code)

    def _open_stacks(self) -> None:
        path = self._context.directory.path / "stallguard.stacks"
        file = open(path, "w", opener=private.opener)  # noqa: SIM115 - closed with the other files
        hang = OwnHang(self._files.enter_context(file), self._context.clock.monotonic)
        hang.start()
        self.loop.hang = hang

    def do_each(self, steps: Mapping[str, Callable[[], None]]) -> None:
        """Do all `steps`, by what is reported if one fails: none may cost the training or its exit code."""
        for doing, step in steps.items():
            with self.loop.continue_on_error(doing):
                step()

    def conclude(self) -> None:
        """Write down how the run ended, and say where its report is."""
        run, directory = self._context.current.run, self._context.directory
        announce = self._context.reporter.announce
        assert run is not None  # noqa: S101 - concluded
        self.do_each(
            {
                "keeping what the run taught": partial(self._earlier.remember, run),
                "writing its outcome": partial(
                    conclusion.write_outcome,
                    directory,
                    run,
                    self._executor.why,
                    self._options.outcome_patience,
                ),
                "removing unfinished checkpoints": partial(
                    conclusion.remove_unfinished_checkpoints, directory
                ),
                "setting checkpoints aside": partial(self._roll_back, run),
                "sending its trace": partial(
                    conclusion.send_trace,
                    directory,
                    self._context.settings.config.metrics.otlp,
                    self._context.env,
                    self._context.reporter.trouble,
                ),
                "removing old runs": partial(
                    conclusion.remove_old_runs, self._context.settings.loaded, directory, announce
                ),
                "writing the end of the run": partial(conclusion.announce_report, directory, run, announce),
            }
        )

    def _roll_back(self, run: Run) -> None:
        context = self._context
        if run.code == NOT_FINITE and context.settings.config.policy.on_nonfinite == "rollback":
            conclusion.set_broken_checkpoints_aside(
                context.directory, context.reporter.announce, context.reporter.trouble
            )

    def close(self) -> None:
        """End what goes on beside the run; the journal stays open until `close_files`."""
        self.do_each(
            {
                "ending the sensors": self._sensing.close,
                "writing the last metrics": self._close_metrics,
                "letting the machine be": self._background.close,
                "sending the last notification": self._notifications.close,
                "reporting what came last": self._context.reporter.report_rest,
            }
        )

    def close_files(self) -> None:
        """Close the journal, when nothing more can be reported."""
        self._files.close()


def _keep_room(context: RunContext) -> None:
    with contextlib.suppress(OSError):  # a full disk now: perhaps not at the end
        run_files.keep_room(context.directory)


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


class BlockableOutput(Protocol):
    """The output of a run: supervisor.output.carrier, or a file."""

    def blocked(self, now: float, /) -> float:
        """Return for how many seconds the user's end has taken nothing; 0 while there is room for more output."""


class HeldOutput:
    """Posts an event every EVERY seconds while the output is held."""

    def __init__(
        self, output: BlockableOutput, post: Callable[[Event], None], now: Callable[[], float]
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
