"""A run of a job: the training outlives the death of stallguard, and a later stallguard guards it again.

It differs from a plain run in three things: the training writes to output.log itself, it is the child of a waiter, and
the run can begin as an earlier stallguard left it.  Must not decide what to do: the core does, from the journal.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stallguard.config import CurrentSettings
from stallguard.core import lifecycle, recovery
from stallguard.core.actions import Collect, Conclude
from stallguard.core.events import Exited, Launched, SupervisorRestarted, UserCommand
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.core.shutdown import Step
from stallguard.errors import NO_SUCH_RUN, USAGE, StallguardError
from stallguard.launch.command import Command, InterpreterChoice, ProbeReach
from stallguard.launch.request import Request
from stallguard.storage import journal, private, run_files
from stallguard.storage.paths import BEATS, CONTROL, RunDir
from stallguard.storage.run_files import RunRequest
from stallguard.supervisor import adopted
from stallguard.supervisor.adopted import Adopted
from stallguard.supervisor.child import Child
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.launcher import EarlierRuns, Launcher, RunOptions, new_sockets, start_child
from stallguard.supervisor.session import Session

# Seconds for which a job tries to write its outcome.  No program waits for its exit code, and without an outcome the
# run would look as if stallguard had been killed.
OUTCOME_PATIENCE = 300.0


def reopened(run: RunDir) -> Request:
    """Return the request of a run that exists.  Raises StallguardError (exit code 3) if run.json is damaged."""
    asked = run_files.asked(run)
    if asked is None:
        raise StallguardError(f"{run.asked} is damaged", cure="start the training anew", code=NO_SUCH_RUN)
    chosen = InterpreterChoice(asked.interpreter, asked.interpreter_why) if asked.interpreter else None
    reach = ProbeReach(not asked.outside, asked.outside)
    return Request(run, tuple(asked.command), Command(asked.argv, chosen), reach, Path(asked.cwd))


def session(
    request: Request, settings: CurrentSettings, env: Mapping[str, str], left: RunRequest | None = None, *,
    end: bool = False,
) -> Session:  # fmt: skip
    """Return the session of a detached run.

    `left`: what run.json says of it if an earlier stallguard left it; `end`: such a run is to be ended at once.
    """
    if settings.config.store.job:
        raise StallguardError(
            "a job of a service manager cannot be a job of a store",
            why="its training outlives stallguard, and then no process renews the lease",
            cure="leave out store.job, or start `stallguard run --store URL --job NAME` by the engine of the fleet",
            code=USAGE,
        )
    options = RunOptions(
        output_to_file=True, start_process=_start_below_a_waiter, save_core=True, outcome_patience=OUTCOME_PATIENCE
    )  # fmt: skip
    if left is not None:
        earlier = _LeftRun(request.run, left, end=end)
        options = options._replace(announce=False, open_sockets=earlier.open_sockets, take_up=earlier.take_up)
    return Session(request, settings, env, options)


def reopened_session(run: RunDir, env: Mapping[str, str], settings: CurrentSettings, *, end: bool = False) -> Session:
    """Return the session of a run that an earlier stallguard left.  Raises as `reopened`; `end`: as `session`."""
    return session(reopened(run), settings, env, run_files.asked(run), end=end)


def _start_below_a_waiter(argv: Sequence[str], exit_file: Path, trouble: Callable[[str], None], /, **how: Any) -> Child:
    """Start an attempt's process as the child of a waiter, which outlives us."""
    try:
        return Adopted.start_below_waiter(argv, file=exit_file, **how)
    except OSError as error:  # such as our own interpreter, removed by an upgrade
        trouble(
            f"no waiter can be started ({error}); if stallguard dies before the training ends, its exit code is lost"
        )
        return start_child(argv, exit_file, trouble, **how)


class _LeftRun:
    """A run that an earlier stallguard left.  `end`: it is to be ended at once."""

    def __init__(self, directory: RunDir, left: RunRequest, *, end: bool) -> None:
        self._left, self._end = left, end
        self._before = run_files.current_attempt(directory)  # the attempt that was under way

    def open_sockets(self, directory: RunDir) -> Path:
        """Return the directory that the living training's probe knows, else a new one."""
        if self._before is not None:
            place = Path(self._before.place)
            with contextlib.suppress(OSError):  # gone or not ours: its page shows the same, only later
                return _cleared(place)
        return new_sockets(directory)

    def take_up(
        self, context: RunContext, launcher: Launcher, earlier: EarlierRuns, limits: Limits, new: Run
    ) -> Step | None:
        """Return the run as it was left, and the next actions; None if nothing of it is left."""
        directory = context.directory
        before, place = journal.load_snapshot(directory) or (None, None)
        events, began = journal.events(directory.journal, place), journal.began(directory.journal)
        found = recovery.rebuilt(events, limits, earlier.learned(), earlier.sizes, before, began)
        if found is None and self._before is None:
            return None
        run = found or new
        if run.state in lifecycle.ENDED and not self._is_newer(run):
            return run, [Conclude(code=run.code, why="")]
        rebooted = run_files.is_of_another_boot(self._left.supervisor)
        context.mailbox.post_next(_restarted(context, run, rebooted=rebooted, ends=self._end))
        if rebooted and not self._end:
            has_checkpoint = directory.has_checkpoints()
            onward = "resuming from the last checkpoint" if has_checkpoint else "it left no checkpoint"
            _report(context, f"the machine was started anew; {onward}")
            return recovery.on_a_new_clock(run, context.clock.monotonic())
        step = self._find_the_training(context, launcher, run, limits)
        if self._end:
            context.mailbox.post(UserCommand(at=context.clock.monotonic(), verb="stop"))
        return step

    def _is_newer(self, run: Run) -> bool:
        """Return whether an attempt lives that the journal does not have, so that it has not ended the run."""
        before = self._before
        return before is not None and run_files.lives(before.process) and before.process.pid != run.current.pid

    def _find_the_training(self, context: RunContext, launcher: Launcher, run: Run, limits: Limits) -> Step:
        now, before = context.clock.monotonic(), self._before
        # A process without a number is that of the run's own attempt, or of a later one that the journal does not have.
        if before is not None and not before.number:
            is_own = run.state in lifecycle.ALIVE and before.process.pid == run.current.pid
            number = run.current.number if is_own else run.current.number + 1
            before = msgspec.structs.replace(before, number=number)
        # Stallguard died before the journal had it.
        if before is not None and before.number > run.current.number:
            resumed = before.number > 1 and context.directory.has_checkpoints()
            launched = Launched(
                at=now, attempt=before.number, pid=before.process.pid, slices=run.current.slices, resumed=resumed,
            )  # fmt: skip
            run = recovery.before_attempt(run, launched)
            context.mailbox.post_next(launched)
        elif run.state not in lifecycle.ALIVE:
            _report(context, "between two attempts")
            return recovery.between_attempts(run)
        if before is None or before.number < run.current.number:  # the disk was full when this attempt began
            _report(context, "the training has ended")
            number, pid = run.current.number, run.current.pid
            file = adopted.written(context.directory.path, run_files.exit_files(number))
            if file is not None:
                launcher.adopt(run_files.ended_attempt(context.directory, number, pid, file), ())
            else:
                context.mailbox.post_next(Exited(at=now, attempt=run.current.number, code=0, known=False))
        else:
            lives, pid = run_files.lives(before.process), before.process.pid
            _report(context, f"the training (pid {pid}) went on" if lives else "the training has ended")
            known = [training.pid for training in run.current.trainings if training.pid and not training.over]
            launcher.adopt(before, known if before.number == run.current.number else ())
        # The evidence that was being collected is lost; nothing is decided without it.
        collect = Collect(incident=run.totals.incidents, attempt=run.current.number)
        return run, [collect] if run.state == lifecycle.COLLECTING else []


def _restarted(context: RunContext, run: Run, *, rebooted: bool, ends: bool) -> SupervisorRestarted:
    """Return how long no stallguard was there.  `ends`: the run is not to go on.

    The clocks of two boots do not compare, so the wall's clock counts then.  Within one boot the longer time of both
    counts: the supervisor's clock stands still in a sleep, and the wall's can be set back.
    """
    now, before = context.clock.monotonic(), journal.last_written(context.directory.journal)
    absent = 0.0 if before is None else max(0.0, time.time() - before)
    absent = absent if rebooted else max(absent, now - run.now)
    return SupervisorRestarted(at=now, seconds=round(absent, 3), until=run.now, rebooted=rebooted and not ends)


def _report(context: RunContext, what: str) -> None:
    context.reporter.announce("run.taken_over", {"run": context.directory.id, "what": what})


def _cleared(place: Path) -> Path:
    """Make `place` fit for our sockets again.  Raises OSError if it is not ours alone."""
    with contextlib.suppress(FileExistsError):
        private.ensure(place.parent)
        private.make(place)
    if not private.is_ours_alone(place):
        raise PermissionError(f"{place} is not ours alone")
    for name in (BEATS, CONTROL):
        (place / name).unlink(missing_ok=True)
    return place
