"""What a job does when its service manager starts it: begin a run, continue one, or exit.

It exits with 0 for every outcome of the training, so that the service manager starts it again only if stallguard
itself crashed.  This module must not judge the training.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from stallguard.agent import due_starts, job_memory
from stallguard.agent.job import Schedule
from stallguard.agent.job_memory import Moment
from stallguard.agent.job_status import recollected, unfinished
from stallguard.errors import StallguardError
from stallguard.storage.paths import RunDir

# A disk that refuses, full or read-only, can take again; a training goes on unsupervised until then.
FIRST_PAUSE, LONGEST_PAUSE, PATIENCE = 1.0, 60.0, 3600.0  # seconds: between two tries, and in all
LOG_MAX = 4_000_000  # bytes of a job's log above which only the newer half of this is kept


class JobRunner(NamedTuple):
    """One start of a job.

    `begin` starts a run, and calls its argument with the id of that run.  `go_on(run, end)` continues a run, in order
    to end it if `end` is true.  Both return when the run is over.  `say` writes to the job's log, `notify` sends a
    message to the user.  `system`: the service manager, launchd or systemd.  `max_restarts`: the starts by it within an
    hour, after stallguard died, after which the job gives up.  `pause` waits for some seconds; it returns False if the
    job was asked to end meanwhile.
    """

    name: str
    command: tuple[str, ...]
    schedule: Schedule
    clock: Callable[[], Moment]
    begin: Callable[[Callable[[str], None]], None]
    go_on: Callable[[RunDir, bool], None]
    say: Callable[[str], None]
    notify: Callable[[str], None]
    system: str
    max_restarts: int
    pause: Callable[[float], bool]

    def do(self) -> None:
        """Do what is due; before that, end a run that was to be ended, or record one that ended without a record.

        If the disk refuses, it tries again until it is asked to end, or for PATIENCE.
        """
        first, wait, waited = True, FIRST_PAUSE, 0.0
        while True:
            try:
                if not self._do(first=first):
                    return
                first = False
            except OSError as error:
                if not waited:
                    self.say(f"{self.name}: the disk refuses ({error}); trying again for an hour")
                if waited >= PATIENCE or not self.pause(wait):
                    self.say(f"{self.name}: gave up: the disk refuses ({error})")
                    return
                waited, wait = waited + wait, min(2 * wait, LONGEST_PAUSE)

    def _do(self, *, first: bool) -> bool:
        """Do one thing; return whether something else can be due."""
        try:
            plan, left = self._decide(first=first)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - after a crash launchd would start the job again every 30 s
            self.say(f"{self.name}: cannot determine what is due: {type(error).__name__}: {error}")
            return False
        # Nothing is logged of an hourly job that does nothing: that would be 24 lines a day.
        if plan.action != due_starts.NOTHING or not self.schedule.is_hourly:
            self.say(f"{self.clock():%Y-%m-%d %H:%M} {self.name}: {plan.action}, {plan.why}")
        try:
            if plan.action == due_starts.BEGIN:
                self.begin(self._begun)
            elif left is not None and plan.action in (due_starts.GO_ON, due_starts.END):
                self.go_on(left, plan.action == due_starts.END)
        except StallguardError as error:  # another try would fail in the same way
            past = due_starts.begun(job_memory.recall(self.name), "", self.clock())
            job_memory.keep(self.name, replace(past, trouble="; ".join(error.lines())))
            for line in error.lines():
                self.say(line)
            return False
        finally:
            if plan.action != due_starts.NOTHING:
                with contextlib.suppress(OSError):  # a full disk: the next missed start is not noticed
                    job_memory.keep(self.name, replace(job_memory.recall(self.name), ended=self.clock()))
        taken_up = plan.action == due_starts.GO_ON and unfinished(job_memory.recall(self.name).run) is None
        return plan.action == due_starts.END or taken_up

    def _decide(self, *, first: bool) -> tuple[due_starts.StartPlan, RunDir | None]:
        """Return the plan, kept in the job's state, and the run without an outcome; report a missed start once."""
        past, now = recollected(self.name, self.command), self.clock()
        if past.damaged:
            self.say(f"{self.name}: {past.trouble}")
        left = unfinished(past.run)
        plan = due_starts.plan(
            self.schedule, past, now, unfinished=left is not None, max_restarts=self.max_restarts, first=first
        )
        missed = due_starts.missed(self.schedule, past, now) if plan.action == due_starts.NOTHING else None
        try:
            job_memory.keep(self.name, replace(due_starts.remembered(past, plan, now), missed=missed or past.missed))
        except OSError as error:
            if plan.action != due_starts.GO_ON:
                raise
            self.say(f"{self.name}: this start is not counted: {error}")
        if missed is not None and missed != past.missed:
            words = due_starts.words(missed, self.system)
            self.say(f"{self.name}: {words}")
            self.notify(words)
        return plan, left

    def _begun(self, run: str) -> None:
        job_memory.keep(self.name, due_starts.begun(job_memory.recall(self.name), run, self.clock()))


def trim(log: Path, most: int = LOG_MAX) -> None:
    """Cut a log that is too long to its newer half; the service manager has it open for appending."""
    if not log.exists() or log.stat().st_size <= most:
        return
    with log.open("r+b") as file:
        file.seek(-most // 2, os.SEEK_END)
        newer = file.read().partition(b"\n")[2]
        file.truncate(0)
        file.seek(0)
        file.write(newer)


def detach_output() -> None:
    """Keep the training's output out of the job's log: it goes to output.log only.

    The standard descriptors, which the training inherits, become /dev/null; `sys.stderr` still writes to the log.
    """
    log = os.dup(2)
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    os.close(null)
    sys.stderr = os.fdopen(log, "w", buffering=1, errors="backslashreplace")
