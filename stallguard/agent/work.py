"""What a job does when its service manager starts it: find out why, then begin a run, go on with one, or end.

It ends with 0 whatever became of the training, so that the service manager starts it again only where stallguard
itself died.  May not judge the training.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from stallguard.agent import due, memory
from stallguard.agent.job import Schedule
from stallguard.agent.memory import Moment
from stallguard.agent.status import unfinished
from stallguard.errors import StallguardError
from stallguard.paths import RunDir

LOG_MAX = 4_000_000  # bytes of a job's log, of which the newer half is kept

Begin = Callable[[Callable[[str], None]], None]
GoOn = Callable[[RunDir], None]


def work(
    name: str, schedule: Schedule, now: Moment, begin: Begin, go_on: GoOn, say: Callable[[str], None]
) -> None:
    """Do what is due.  `begin` is handed what to call with the id of its run."""
    try:
        plan, left = _decide(name, schedule, now)
    except Exception as error:  # noqa: BLE001 - to die here would have launchd start us every 30 s for ever
        say(f"{name}: cannot tell what is due: {type(error).__name__}: {error}")
        return
    say(f"{now:%Y-%m-%d %H:%M} {name}: {plan.action}, {plan.why}")
    try:
        if plan.action == due.BEGIN:
            begin(lambda run: _remember(name, run=run))
        elif plan.action == due.GO_ON and left is not None:
            go_on(left)
    except StallguardError as error:  # trying again would bring the same
        _remember(name, trouble="; ".join(error.lines()))
        for line in error.lines():
            say(line)


def _decide(name: str, schedule: Schedule, now: Moment) -> tuple[due.Plan, RunDir | None]:
    past = memory.recall(name)
    left = unfinished(past.run)
    plan = due.plan(schedule, past, now, unfinished=left is not None)
    memory.keep(name, due.remembered(past, plan, now))
    return plan, left


def _remember(name: str, **what: str) -> None:
    memory.keep(name, replace(memory.recall(name), **what))


def trim(log: Path, most: int = LOG_MAX) -> None:
    """Cut a log that has grown too long to its newer half; the service manager has it open for appending."""
    if not log.exists() or log.stat().st_size <= most:
        return
    with log.open("r+b") as file:
        file.seek(-most // 2, os.SEEK_END)
        newer = file.read().partition(b"\n")[2]
        file.truncate(0)
        file.seek(0)
        file.write(newer)


def step_aside() -> None:
    """Leave the log to stallguard's own words: the training's output goes to its output.log alone."""
    words = os.dup(2)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    sys.stderr = os.fdopen(words, "w", buffering=1, errors="backslashreplace")
