"""A run that nobody watches: the training outlives the death of stallguard, and a later one guards it again.

It differs from any other session in three things: the training writes to its file itself, each attempt is noted
on the disk, and the run may begin where an earlier stallguard left it.  May not decide what to do: the core does,
from the journal.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from stallguard import interpreter, journal, outcome, paths
from stallguard.command import Command, Reach
from stallguard.config import Loaded
from stallguard.core import again, lifecycle
from stallguard.core.actions import Conclude, Launch
from stallguard.core.events import Asked, Collected, Launched
from stallguard.core.run import Run
from stallguard.core.steps import Step
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.outcome import AskedFor, Identity
from stallguard.paths import RunDir
from stallguard.probe import wire
from stallguard.supervisor import attempts, saved
from stallguard.supervisor.adopted import UNKNOWN
from stallguard.supervisor.attempts import Attempt
from stallguard.supervisor.filed import PARTS, Filed
from stallguard.supervisor.request import Request
from stallguard.supervisor.session import Session

TAIL = 4096  # bytes of output in which an error that ended the training stands
TRACE = b"Traceback (most recent call last)"


def reopened(run: RunDir) -> Request:
    """Return the request of a run that exists.  Raises StallguardError (exit code 3) where run.json is damaged."""
    asked = outcome.asked(run)
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
        self._saver: saved.Saver | None = None
        self._before = attempts.current(request.run) if left else None
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

    def attempt_began(self, action: Launch, token: int, child: Identity) -> None:
        """Note what a later stallguard needs."""
        attempts.keep(self.dir, Attempt(attempts.SCHEMA, action.attempt, child, token, str(self.place)))

    def _announce(self) -> None:
        """Say what is guarded; a run that is taken up again was announced before."""
        if self._left is None:
            super()._announce()

    def _open_journal(self) -> None:
        """Open it, and save beside it from then on what folding it brings."""
        super()._open_journal()
        self._saver = saved.Saver(self.dir, self.journal)

    def _tune(self, run: Run) -> None:
        super()._tune(run)
        if self._saver is not None:
            self._saver.look(run)

    def _name_control(self) -> None:
        """Take the run over in run.json, so that it counts as guarded."""
        with contextlib.suppress(OSError):  # a full disk: the run is only harder to find
            asked = outcome.asked(self.dir)
            if asked is not None:
                mine, control = outcome.identity(os.getpid()), str(self.control.path)
                outcome.write(
                    self.dir.asked, msgspec.structs.replace(asked, supervisor=mine, control=control)
                )

    def _begin(self) -> Step:
        if self._left is None:
            return super()._begin()
        before, place = saved.load(self.dir) or (None, None)
        events = journal.events(self.dir.journal, place)
        run = again.rebuilt(
            events, self.loop.limits, self.performer.learned(), self.performer.sizes(), before
        )
        if run is None and self._before is None:
            return super()._begin()
        return self._taken_up(run or super()._begin()[0], self._left)

    def _taken_up(self, run: Run, left: AskedFor) -> Step:
        if run.state in lifecycle.ENDED:
            return run, [Conclude(code=run.code, why="")]
        if left.supervisor.started < psutil.boot_time() and not self._end:
            self._say("the machine was started anew; resuming from the last checkpoint")
            return again.on_a_new_clock(run, self.loop.limits, self.clock.monotonic())
        self._find_the_training(run)
        if self._end:
            self.mailbox.post(Asked(at=self.clock.monotonic(), verb="stop"))
        return run, []

    def _find_the_training(self, run: Run) -> None:
        now, before = self.clock.monotonic(), self._numbered(run)
        if before is not None and before.number > run.attempt:  # it died before the journal had it
            launched = Launched(at=now, attempt=before.number, pid=before.process.pid, factor=run.factor)
            self.mailbox.post_next(launched)
        elif run.state not in lifecycle.ALIVE:
            self._say("between two attempts")
            return
        if run.state == lifecycle.COLLECTING:
            lost = Collected(at=now, incident=run.totals.incidents, seconds=0.0, missing=("everything",))
            self.mailbox.post_next(lost)
        if before is not None:
            self._adopt(before, run)

    def _numbered(self, run: Run) -> Attempt | None:
        """Return the attempt that was left, with its number: the run's own, or the next where that one had ended."""
        before = self._before
        if before is None or before.number:
            return before
        number = run.attempt if run.state in lifecycle.ALIVE else run.attempt + 1
        return msgspec.structs.replace(before, number=number)

    def _adopt(self, before: Attempt, run: Run) -> None:
        lives = outcome.lives(before.process)
        went = f"the training (pid {before.process.pid}) went on" if lives else "the training has ended"
        self._say(went)
        known = [training.pid for training in run.trainings if training.pid and not training.over]
        self.performer.adopt(before, self._guess, known if before.number == run.attempt else ())

    def _say(self, what: str) -> None:
        self._tell("taken_up", {"run": self.dir.id, "what": what})

    def _guess(self) -> int:
        """Return the exit code of a training whose end nobody saw: good order, or else an end by force."""
        run = self.loop.run
        seen = [one for one in run.trainings if one.pid] if run else []
        pids = [one.pid for one in seen if one.trains] or [one.pid for one in seen]
        pids = pids or [self._before.process.pid if self._before else 0]
        return guess([self.dir.probe / f"{pid}.page" for pid in pids], self.dir.output)


def guess(pages: Sequence[Path], output: Path) -> int:
    """Return 0 where the last that each probe knew was the interpreter's end and the output ends in no error."""
    try:
        records = [wire.unpack(page.read_bytes()[: wire.SIZE]) for page in pages]
        size = output.stat().st_size
        with output.open("rb") as file:
            file.seek(max(size - TAIL, 0))
            ends_in_error = TRACE in file.read()
    except OSError:
        return UNKNOWN
    end = wire.PHASES.index("finishing")
    finished = all(record is not None and record["phase"] == end for record in records)
    return 0 if finished and not ends_in_error else UNKNOWN


def _cleared(place: Path) -> Path:
    """Make `place` fit for our sockets again.  Raises OSError where it is not ours alone."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = place.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise PermissionError(f"{place} is not ours alone")
    for name in ("beats", "control"):
        (place / name).unlink(missing_ok=True)
    return place
