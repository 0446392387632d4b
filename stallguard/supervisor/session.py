"""One run from start to end: builds the parts, hands each what it needs, starts the child first, cleans up.

The child is started before most of stallguard is imported: what judges and acts (supervisor.guard) is imported while
the child's interpreter starts.  So this module imports only what the child waits for, and must
stay cheap to import.

A training whose guard cannot be imported goes on without one: its end is the run's, and the user can still end it.  An
installation that is damaged, or replaced in that moment, is noticed when the training already runs.  core.fallback
handles later errors.
"""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from stallguard.config import CurrentSettings
from stallguard.core.actions import Launch
from stallguard.core.events import Exited, Failed, UserCommand
from stallguard.core.time_spent import Spent
from stallguard.errors import GAVE_UP, SIGNALLED
from stallguard.host import system
from stallguard.launch.request import Request
from stallguard.storage import run_files
from stallguard.storage.paths import CONTROL, remove_sockets
from stallguard.supervisor import notices, signals, terminal_lines
from stallguard.supervisor.context import CurrentRun, Mailbox, Reporter, RunContext
from stallguard.supervisor.control import Control
from stallguard.supervisor.heartbeats import HeartbeatListener
from stallguard.supervisor.launcher import EarlierRuns, Launcher, RunOptions
from stallguard.supervisor.notices import Recorder, Terminal, wants_color
from stallguard.supervisor.output import Matching, OutputCarrier
from stallguard.supervisor.output_log import PARTS, OutputLog

if TYPE_CHECKING:
    from stallguard.supervisor.followed_output import FollowedOutput
    from stallguard.supervisor.guard import Guard
    from stallguard.supervisor.live_status import LiveStatus
    from stallguard.supervisor.output_log import OutputFile

LAST_OUTPUT = 60.0  # seconds that a reader who takes nothing can hold up the end of the run
PLAIN = RunOptions()

# What a user can ask for, with the signal that does it.  As core.fallback's, which may be what cannot be imported.
ENDING = {"interrupt": "INT", "stop": "TERM", "finish": "TERM"}


class Session:
    """The parts of a run.  `context`: what all of them share."""

    def __init__(
        self,
        request: Request,
        settings: CurrentSettings,
        env: Mapping[str, str],
        options: RunOptions = PLAIN,
    ) -> None:  # fmt: skip
        """Make what must exist before the child starts; raises StallguardError or OSError, leaving nothing behind.

        `env`: the user's environment.
        """
        self._options = options
        self._guard: Guard | None = None  # until the run has begun
        self._is_output_finished = False
        clock, current, journal = system, CurrentRun(), Recorder()
        mailbox = Mailbox(clock.monotonic, options.observe)
        self._matching = Matching(mailbox.post, clock.monotonic, lambda: current.attempt)
        wanted, tty = settings.config.output, terminal_lines.look(2).kind == "terminal"
        color = wants_color(wanted.color, env, tty=tty)
        screen = Terminal(sys.stderr, quiet=wanted.quiet, color=color, verbose=wanted.verbose)
        reporter = Reporter(mailbox, clock, current, journal, screen)
        output = _output(request, settings.config.keep.output, options, self._matching, reporter)
        screen.fresh = output.fresh
        try:
            sockets = options.open_sockets(request.run)
        except Exception:
            output.finish()
            raise
        self._beats = HeartbeatListener(sockets, request.run.probe, mailbox.post, clock.monotonic, options.observe)
        self._beats.outside.barred = request.reach.why
        if options.is_foreign and not request.reach.injectable:
            self._beats.outside.after = 0.0
        self.context = RunContext(
            request=request, env=env, settings=settings, sockets=sockets, clock=clock,
            began=clock.monotonic(), mailbox=mailbox, journal=journal, current=current, reporter=reporter,
            terminal=screen, output=output,
        )  # fmt: skip
        self._earlier = EarlierRuns(self.context, is_trial=options.trial is not None)
        self._launcher = Launcher(self.context, self._beats, self._matching, self._earlier, options.start_process)
        self._control = Control(
            sockets / CONTROL, mailbox.post, clock.monotonic, self.status, self._refuses, reporter.trouble
        )

    def status(self) -> LiveStatus:
        """Return how the run stands; from any thread."""
        from stallguard.supervisor.live_status import snapshot

        if self._guard is not None:
            return self._guard.status()
        return snapshot(self.context.directory.id, None, self.context.clock.monotonic())

    def _refuses(self, verb: str) -> str:
        from stallguard.core import user_commands

        run = self.context.current.run
        return user_commands.refuses(run, verb) if run else ""

    def guard(self, kept: list[int]) -> int:
        """Run the training to its end; return the exit code.  `kept`: signals from before."""
        context = self.context
        before, threading.excepthook = threading.excepthook, context.reporter.thread_failed
        try:
            with signals.forwarded(context.mailbox, context.clock.monotonic, self._launcher.pass_on, kept):
                code = self._run()
            if self._guard:
                self._finish_output()
                self._guard.conclude()
            return code
        finally:
            if self._guard:
                self._guard.close()
            guard = self._guard
            for doing, step in {
                "letting the training be": self._launcher.close,
                "passing the last output on": self._finish_output,
                "leaving the terminal": context.terminal.close,
                "closing its socket": self._control.close,
                "closing the probe's socket": self._beats.close,
                "closing the journal": guard.close_files if guard else lambda: None,
            }.items():
                with guard.loop.continue_on_error(doing) if guard else contextlib.suppress(Exception):
                    step()
            remove_sockets(context.sockets)
            threading.excepthook = before

    def _run(self) -> int:
        context, launcher, options = self.context, self._launcher, self._options
        first = options.trial or first_launch(context, self._earlier)
        if options.announce:
            announce_start(context, launcher, self._earlier, first)
        if options.beside is not None:
            options.beside(context, launcher)
        is_new = options.take_up is None
        done, failed = None, None
        if is_new:
            context.journal.write(context.clock.monotonic(), first)
            try:
                launcher.launch(first)
            except Exception as error:  # noqa: BLE001 - the loop reports it, once there is one
                failed = error
            done = first
        # From here on there is a training that no error of ours may cost.
        try:
            from stallguard.supervisor.guard import Guard

            guard = Guard(context, launcher, self._beats, self._matching, self._earlier, options)
            begun = guard.begin(first)
            gc.freeze()  # what was imported is needed to the end: collections need not look at it
        except Exception as error:
            gc.enable()
            if not is_new:
                raise

            return wait_unguarded(context, launcher, error)
        self._guard = guard
        gc.enable()  # `cli.main` has disabled it
        return guard.run(begun, done, failed, self._control.path)

    def _finish_output(self) -> None:
        if not self._is_output_finished:
            self._is_output_finished = True
            self.context.output.finish(LAST_OUTPUT)


def _output(
    request: Request, size: int, options: RunOptions, matching: Matching, reporter: Reporter
) -> OutputCarrier | OutputFile | FollowedOutput:
    path = request.run.output
    if options.is_foreign:
        from stallguard.supervisor.followed_output import FollowedOutput

        log = OutputLog(path, reporter.trouble, size // PARTS)
        return FollowedOutput(options.follows, log, matching.feed, reporter.trouble)
    if options.output_to_file:
        from stallguard.supervisor.output_log import OutputFile

        return OutputFile(path, reporter.trouble, size // PARTS, matching.feed)
    streams = terminal_lines.choose(terminal_lines.look(1), terminal_lines.look(2))
    return OutputCarrier(streams, OutputLog(path, reporter.trouble, size // PARTS), reporter.trouble, tap=matching.feed)


def first_launch(context: RunContext, earlier: EarlierRuns) -> Launch:
    """Return the launch of a new run's first attempt."""
    settings = context.settings.config
    is_sliced = settings.run.probe and not settings.policy.gives_size
    slices = max(earlier.sizes.slices, settings.policy.microbatches) if is_sliced else 1
    return Launch(attempt=1, slices=slices, resume=bool(context.request.continues))


def announce_start(context: RunContext, launcher: Launcher, earlier: EarlierRuns, first: Launch) -> None:
    """Write to the terminal what is guarded, and what was decided before the start."""
    request, reporter = context.request, context.reporter
    reporter.announce("run.started", {"command": " ".join(request.words), "run": context.directory.id})
    for text in context.settings.loaded.ignored:
        reporter.announce("stallguard.trouble", {"text": text})
    chosen = request.command.interpreter
    if chosen is not None:
        reporter.announce("interpreter.chosen", {"python": chosen.path, "why": chosen.why})
        if chosen.hint:
            reporter.announce("interpreter.differs", {"python": chosen.path, "hint": chosen.hint})
    if request.continues:
        reporter.announce("run.continues", {"run": request.continues})
    if not request.reach.injectable:
        reporter.announce("probe.impossible", {"why": request.reach.why})
    known, given = earlier.sizes, launcher.given(1)
    if 1 < known.slices == first.slices:
        reporter.announce("batch.known_parts", {"parts": str(known.slices)})
    elif given.whole is not None and given.whole == known.rows:
        reporter.announce("batch.known_rows", {"rows": str(known.rows)})


def wait_unguarded(context: RunContext, launcher: Launcher, error: Exception) -> int:
    """Wait for the end of the training, write the outcome, and return the exit code of the run."""
    why = notices.error_words(error)
    context.reporter.announce("run.unguarded", {"error": why})
    asked = False
    while True:
        event = context.mailbox.next(math.inf)
        if isinstance(event, Failed):
            return event.code
        if isinstance(event, UserCommand) and event.verb in ENDING:
            launcher.signal(ENDING[event.verb])
            asked = True
        if isinstance(event, UserCommand) and event.verb == "signal":
            launcher.signal(event.argument, event.number)
            asked = True
        if isinstance(event, Exited):
            break
    code = event.code if event.code >= 0 else SIGNALLED - event.code
    code = code if event.known else GAVE_UP
    # What was not counted is zero here, as in a run without a probe.
    times = Spent(unknown=context.clock.monotonic() - context.began)
    script_code = event.code if event.known and event.code >= 0 and not asked else None
    end = run_files.ended(code, f"it went on unguarded: {why}", times, script_code=script_code)
    with contextlib.suppress(OSError):  # a full disk
        run_files.conclude(context.directory, end)
    return code
