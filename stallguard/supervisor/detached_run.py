"""A run that nobody watches: the training outlives the death of stallguard, and a later one guards it again.

It differs from any other session in three things: the training writes to its file itself, it is the child of a waiter,
and the run can begin where an earlier stallguard left it.  Must not decide what to
do: the core does, from the journal.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stallguard.config import Loaded
from stallguard.core import lifecycle, recovery
from stallguard.core.actions import Collect, Conclude, Launch
from stallguard.core.events import Asked, Launched
from stallguard.core.run import Run
from stallguard.core.transitions import Step
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.launch import interpreter
from stallguard.launch.command import Command, Reach
from stallguard.launch.request import Request
from stallguard.storage import attempt_file, core_snapshot, journal, paths, run_files
from stallguard.storage.attempt_file import Attempt
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import AskedFor
from stallguard.supervisor.output.file import PARTS, Filed
from stallguard.supervisor.process.adopted import Adopted
from stallguard.supervisor.process.child import Child
from stallguard.supervisor.session import Session


def reopened(run: RunDir) -> Request:
    """Return the request of a run that exists.  Raises StallguardError (exit code 3) where run.json is damaged."""
    asked = run_files.asked(run)
    if asked is None:
        raise StallguardError(f"{run.asked} is damaged", cure="start the training anew", code=NO_SUCH_RUN)
    chosen = interpreter.Choice(asked.interpreter, asked.interpreter_why) if asked.interpreter else None
    reach = Reach(not asked.outside, asked.outside)
    return Request(run, tuple(asked.command), Command(asked.argv, chosen), reach, Path(asked.cwd))


class Detached(Session):
    """The parts of such a run.  `left`: what run.json says of it where an earlier stallguard left it, else None."""

    def __init__(
        self,
        request: Request,
        loaded: Loaded,
        env: Mapping[str, str],
        reload: Callable[[], Loaded] | None = None,
        left: AskedFor | None = None,
        *,
        end: bool = False,
    ) -> None:
        """As Session.  `end`: a run that is taken up is to be ended at once."""
        self._left, self._end = left, end
        self._saver: core_snapshot.Saver | None = None
        self._before = attempt_file.current(request.run) if left else None
        super().__init__(request, loaded, env, reload)

    def _open_place(self) -> Path:
        """Return the directory that the living training's probe knows, else a new one."""
        if self._before is not None:
            place = Path(self._before.place)
            with contextlib.suppress(OSError):  # gone or not ours: its page tells the same, only later
                return _cleared(place)
        return paths.socket_dir(owner=self.dir.path)

    def _open_output(self) -> Filed:
        part = self.loaded.config.keep.output // PARTS
        return Filed(self.dir.output, self.trouble, part, self.matching.feed)

    def start_child(self, argv: Sequence[str], file: Path, **how: Any) -> Child | Adopted:
        """Start an attempt's process below a waiter, which outlives us."""
        try:
            return Adopted.start(argv, file=file, **how)
        except OSError as error:  # such as our own interpreter, removed by an upgrade
            self.trouble(
                f"no waiter can be started ({error}); if stallguard dies before the training ends, "
                "its exit code is lost"
            )
            return super().start_child(argv, file, **how)

    def _announce(self) -> None:
        """Say what is guarded; a run that is taken up again was announced before."""
        if self._left is None:
            super()._announce()

    def _open_journal(self) -> None:
        """Open it, and save beside it from then on what folding it brings."""
        super()._open_journal()
        self._saver = core_snapshot.Saver(self.dir, self.journal)

    def _tune(self, run: Run) -> None:
        super()._tune(run)
        if self._saver is not None:
            self._saver.look(run)

    def _name_control(self) -> None:
        """Take the run over in run.json, so that it counts as guarded."""
        with contextlib.suppress(OSError):  # a full disk: the run is only harder to find
            asked = run_files.asked(self.dir)
            if asked is not None:
                mine, control = run_files.identity(os.getpid()), str(self.control.path)
                run_files.write(
                    self.dir.asked, msgspec.structs.replace(asked, supervisor=mine, control=control)
                )

    def _first(self) -> Launch | None:
        return super()._first() if self._left is None else None

    def _begin(self, first: Launch | None) -> Step:
        if self._left is None:
            return super()._begin(first)
        before, place = core_snapshot.load(self.dir) or (None, None)
        events = journal.events(self.dir.journal, place)
        run = recovery.rebuilt(events, self.loop.limits, self.performer.learned(), self.sizes(), before)
        if run is None and self._before is None:
            return super()._begin(first)
        return self._taken_up(run or super()._begin(first)[0], self._left)

    def _taken_up(self, run: Run, left: AskedFor) -> Step:
        if run.state in lifecycle.ENDED:
            return run, [Conclude(code=run.code, why="")]
        if run_files.is_of_another_boot(left.supervisor) and not self._end:
            onward = (
                "resuming from the last checkpoint" if self.dir.has_checkpoints() else "it left no checkpoint"
            )
            self._say(f"the machine was started anew; {onward}")
            return recovery.on_a_new_clock(run, self.loop.limits, self.clock.monotonic())
        run, actions = self._find_the_training(run)
        if self._end:
            self.mailbox.post(Asked(at=self.clock.monotonic(), verb="stop"))
        return run, actions

    def _find_the_training(self, run: Run) -> Step:
        now, before = self.clock.monotonic(), self._numbered(run)
        if before is not None and before.number > run.attempt:  # it died before the journal had it
            resumed = before.number > 1 and self.dir.has_checkpoints()
            launched = Launched(
                at=now, attempt=before.number, pid=before.process.pid, factor=run.factor, resumed=resumed
            )
            self.mailbox.post_next(launched)
        elif run.state not in lifecycle.ALIVE:
            self._say("between two attempts")
            return recovery.between_attempts(run)
        if before is not None:
            self._adopt(before, run)
        # The evidence that was being gathered died with its stallguard; nothing is decided without it.
        collect = Collect(incident=run.totals.incidents, attempt=run.attempt)
        return run, [collect] if run.state == lifecycle.COLLECTING else []

    def _numbered(self, run: Run) -> Attempt | None:
        """Return the attempt that was left, with its number: the run's own, or the next where that one had ended."""
        before = self._before
        if before is None or before.number:
            return before
        number = run.attempt if run.state in lifecycle.ALIVE else run.attempt + 1
        return msgspec.structs.replace(before, number=number)

    def _adopt(self, before: Attempt, run: Run) -> None:
        lives = run_files.lives(before.process)
        went = f"the training (pid {before.process.pid}) went on" if lives else "the training has ended"
        self._say(went)
        known = [training.pid for training in run.trainings if training.pid and not training.over]
        self.launcher.adopt(before, known if before.number == run.attempt else ())

    def _say(self, what: str) -> None:
        self.tell("taken_up", {"run": self.dir.id, "what": what})


def _cleared(place: Path) -> Path:
    """Make `place` fit for our sockets again.  Raises OSError where it is not ours alone."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = place.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise PermissionError(f"{place} is not ours alone")
    for name in ("beats", "control"):
        (place / name).unlink(missing_ok=True)
    return place
