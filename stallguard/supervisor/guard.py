"""What judges and acts: the parts that are imported and made while the first attempt's interpreter starts.

`EvidenceCollector` collects the evidence of each incident on a thread of its own, and posts Collected at the end.
`Notifications` sends the sentences of a run over the channels that the settings name, and keeps what became of them.

Must not decide, not even after an error: the core decides, the loop asks it, `Guard` has it done.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from stallguard import notify
from stallguard.collectors import evidence_bundle
from stallguard.config.table import Config
from stallguard.core import fold
from stallguard.core.actions import Action, Announce, Ask, Collect, Conclude, Launch, Signal
from stallguard.core.events import DUMP, Collected, UserCommand
from stallguard.core.run import Run
from stallguard.core.shutdown import Step
from stallguard.core.text import far, loss_words
from stallguard.errors import NOT_FINITE
from stallguard.host.psutil_errors import ERRORS
from stallguard.launch.environment import STACKS_SIGNAL
from stallguard.report.narrative import sentence
from stallguard.storage import private, run_files
from stallguard.storage.journal import Journal, SnapshotSaver
from stallguard.storage.run_files import ChannelRecord
from stallguard.supervisor import conclusion
from stallguard.supervisor.background import HeldOutput, SensorThreads, SupervisorName, Surroundings
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.heartbeats import HeartbeatListener
from stallguard.supervisor.launcher import EarlierRuns, Launcher, RunOptions
from stallguard.supervisor.live_status import LiveStatus, MetricsFile, snapshot
from stallguard.supervisor.loop import Loop, OwnHang
from stallguard.supervisor.notices import persistently
from stallguard.supervisor.output import Matching
from stallguard.worker import REFUSALS, Worker

BUDGET = 10.0  # seconds in which evidence is gathered: the training stands still for them, before a restart
FINAL = (*notify.OCCASIONS["finish"], *notify.OCCASIONS["give_up"])  # messages that end a run


class EvidenceCollector:
    """Collects the evidence of one run's incidents, and the dumps that its user asks for."""

    def __init__(self, context: RunContext, launcher: Launcher) -> None:
        """`launcher`: knows the environment of the attempt, whose secrets are removed from evidence."""
        self._context, self._launcher = context, launcher
        self._identity: run_files.Identity | None = None  # of the process of the latest evidence
        self._dumping = threading.Event()  # set while a dump is collected: evidence that the user asked for

    def collect(self, action: Collect, run: Run) -> None:
        """Begin to collect.  A request for a dump is dropped while a dump is collected, which serves both requests."""
        if action.incident == DUMP:
            if self._dumping.is_set():
                return
            self._dumping.set()
        try:
            Worker(partial(self._collect, action, run), "collect").start()
        except REFUSALS as error:
            self._fail(action, error)

    def _collect(self, action: Collect, run: Run) -> None:
        try:
            collected = evidence_bundle.collect(self._bundle_context(action, run))
        except Exception as error:  # noqa: BLE001 - the restart waits for Collected
            self._fail(action, error)
            return
        if action.incident == DUMP:
            self._dumping.clear()
        self._context.mailbox.post(collected)

    def _fail(self, action: Collect, error: Exception) -> None:
        """Post that everything is missing, for which the restart waits, and report the error."""
        if action.incident == DUMP:
            self._dumping.clear()

        def post() -> None:
            now = self._context.clock.monotonic()
            self._context.mailbox.post(
                Collected(at=now, incident=action.incident, seconds=0.0, missing=("everything",))
            )

        persistently(post)
        self._context.reporter.trouble(f"the evidence is incomplete: {type(error).__name__}: {error}")

    def _bundle_context(self, action: Collect, run: Run) -> evidence_bundle.EvidenceContext:
        request, directory, greeted = self._context.request, self._context.directory, run.history.greeted
        # The process whose probe sent a hello, else the child.
        pid = greeted.pid if greeted else run.current.pid
        with contextlib.suppress(ProcessLookupError, *ERRORS):  # if it has ended, the collectors report that
            self._identity = run_files.identity(pid)
        settings, now = self._context.settings.config.evidence, self._context.clock.monotonic()
        place = directory.dump() if action.incident == DUMP else directory.incident(action.incident)
        return evidence_bundle.EvidenceContext(
            incident=action.incident, pid=pid, armed=bool(greeted and greeted.armed),
            stacks=directory.probe / f"{pid}.stacks", directory=place, run=directory.path, root=run.current.pid,
            identity=self._identity, lives_on=True, signal=STACKS_SIGNAL,
            since=time.time() - (now - run.current.launched),
            argv=tuple(request.command.argv), environment=self._launcher.environment_of_child,
            versions=greeted.versions if greeted else {}, cwd=str(request.cwd), home=str(Path.home()),
            script=request.script(), include_source=settings.include_source, budget=BUDGET,
        )  # fmt: skip


class Notifications:
    """Of one run; closed until `open`."""

    def __init__(self, context: RunContext) -> None:
        """Send nothing yet."""
        self._context = context
        self._notifier: notify.Notifier | None = None

    @property
    def records(self) -> list[ChannelRecord]:
        """What became of the notifications, by channel."""
        return self._notifier.records if self._notifier else []

    def open(self, config: Config) -> None:
        """Prepare the channels that `config` names; they replace the earlier ones."""
        before, wanted = self._notifier, config.notify
        channels, trouble = notify.configured(wanted, self._context.env), self._context.reporter.trouble
        self._notifier = notify.Notifier(channels, trouble, notify.kinds(wanted.on), wanted.every, self._keep)
        if before is not None:
            before.close()

    def _keep(self, records: list[ChannelRecord]) -> None:
        # A full disk: a live run shows them, and the journal has the failures.
        with contextlib.suppress(OSError):
            run_files.keep_notifications(self._context.directory, records)

    def send(self, action: Announce, run: Run) -> None:
        """Send one sentence; the last one of a run says how far the training came."""
        if self._notifier is None:
            return
        text, heartbeat = sentence(action.message, action.facts), run.history.heartbeat
        # The progress of one of several trainings says nothing about the run.
        if action.message in FINAL and heartbeat is not None and run.current.begun <= 1:
            epoch = heartbeat.epoch + 1 if heartbeat.epoch >= 0 else None
            loss = loss_words(heartbeat.loss, heartbeat.loss_not_finite)
            inside = heartbeat.source == "callbacks" and not heartbeat.loss_of_epoch
            loss += " so far in its epoch" if loss and inside and 0 <= heartbeat.batch < heartbeat.batches else ""
            reached = far(epoch, heartbeat.epochs if heartbeat.epochs > 0 else None, loss)
            text = f"{text}; {reached}" if reached else text
        name = self._context.directory.id
        self._notifier.notify(notify.notification(action.message, f"stallguard: {name}", text, name), run.now)

    def close(self) -> None:
        """Wait a moment until the last notification is sent."""
        if self._notifier is not None:
            self._notifier.close()


class Guard:
    """Of one run: `begin`, `run` to its end, `conclude`, `close`."""

    def __init__(
        self, context: RunContext, launcher: Launcher, beats: HeartbeatListener, matching: Matching,
        earlier: EarlierRuns, options: RunOptions,
    ) -> None:  # fmt: skip
        """Make the parts."""
        self._context, self._launcher, self._earlier, self._options = context, launcher, earlier, options
        self._notifications = Notifications(context)
        self._metrics: MetricsFile | None = None
        self._beats, self._evidence = beats, EvidenceCollector(context, launcher)
        self._why = ""  # why the run ended, once it is concluded
        self.loop = Loop(context, self._perform)
        self._background = Surroundings(context)
        self._sensing = SensorThreads(context, launcher.target, matching, options.sensor_periods)
        self._is_stopping = False  # options.stop_when has become true
        held = HeldOutput(context.output, context.mailbox.post, context.clock.monotonic)
        looks = (self._sensing.tune, launcher.look, self._background.look, held.look, self._stop_if_wanted)
        self.loop.after = [*looks]
        self._files = contextlib.ExitStack()  # open until the last error can have been reported
        context.settings.follow(self._notifications.open)

    def _perform(self, action: Action, run: Run) -> None:
        """Hand an action of the core to the part that does it; none blocks the deciding thread."""
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
                self._context.terminal.announce(action.message, action.facts)
                self._notifications.send(action, run)
            case Conclude():
                self._why = action.why
            case _:  # for the journal alone
                pass

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
        run = fold.begin(self._context.began, first.slices, earlier.learned(), earlier.sizes)
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
            self.loop.after.append(SnapshotSaver(directory, journal).look)

    def _open_metrics(self) -> None:
        textfile = self._context.settings.config.metrics.textfile
        if not textfile:
            return
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
        context, run, directory = self._context, self._context.current.run, self._context.directory
        announce = context.reporter.announce
        assert run is not None  # noqa: S101 - concluded
        otlp, trouble = context.settings.config.metrics.otlp, context.reporter.trouble
        patience, loaded = self._options.outcome_patience, context.settings.loaded
        self.do_each({
            "keeping what the run taught": lambda: self._earlier.remember(run),
            "writing its outcome": lambda: conclusion.write_outcome(directory, run, self._why, patience),
            "removing unfinished checkpoints": lambda: conclusion.remove_unfinished_checkpoints(directory),
            "setting checkpoints aside": lambda: self._roll_back(run),
            "sending its trace": lambda: conclusion.send_trace(directory, otlp, context.env, trouble),
            "removing old runs": lambda: conclusion.remove_old_runs(loaded, directory, announce),
            "writing the end of the run": lambda: conclusion.announce_report(directory, run, announce),
        })  # fmt: skip

    def _roll_back(self, run: Run) -> None:
        context = self._context
        if run.code == NOT_FINITE and context.settings.config.policy.on_nonfinite == "rollback":
            conclusion.set_broken_checkpoints_aside(context.directory, context.reporter)

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
