"""A process that the user names by its number, to be watched: what it is, and why it cannot be watched.

Everything is read once, and belongs to one identity: if the process is another one afterwards, there is none of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import psutil

from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE, StallguardError
from stallguard.host.psutil_errors import ERRORS
from stallguard.launch.request import name_of
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs
from stallguard.storage.run_files import Identity

T = TypeVar("T")
PRINTS_TO = (1, 2)  # descriptors of standard output and error


class NamedProcess(NamedTuple):
    """A process that can be watched."""

    who: Identity
    words: tuple[str, ...]  # its command line, for people
    argv: list[str]  # the same as the system has it
    cwd: Path
    name: str  # for the run
    output: Path | None  # the file that it prints to; None: no file, or the system does not say


def find(pid: int) -> NamedProcess:
    """Return the process.

    Raises StallguardError: exit code 3 if there is none, 126 if it is another user's, 2 if it is stallguard itself, or
    if a run has it already.
    """
    run_files.require_processes()
    try:
        who = run_files.identity(pid)
        process = psutil.Process(pid)
        owner, is_over = process.uids().real, process.status() == psutil.STATUS_ZOMBIE
    except (ProcessLookupError, OverflowError, psutil.NoSuchProcess) as error:
        raise _gone(pid, "there is no such process") from error
    except ERRORS as error:
        raise StallguardError(f"process {pid} cannot be read", why=str(error), code=CANNOT_RUN) from error
    if is_over:
        raise _gone(pid, "it is over; its parent has not taken its exit code yet")
    if owner != os.getuid():
        raise StallguardError(
            f"process {pid} belongs to another user", cure="watch it as the user that started it", code=CANNOT_RUN
        )
    if pid in (os.getpid(), os.getppid()):
        raise StallguardError(f"process {pid} is stallguard itself, or what started it", code=USAGE)
    _refuse_guarded(process, list_runs())
    none: list[str] = []
    argv = _read(process.cmdline, none)
    named = _read(process.name, "")
    cwd = Path(_read(process.cwd, "/"))
    found = NamedProcess(who, tuple(argv or [named]), argv or [named], cwd, _name(argv, named), _output(process))
    if not run_files.lives(who):
        raise _gone(pid, "it has just ended")
    return found


def _refuse_guarded(process: psutil.Process, runs: Iterable[RunDir]) -> None:
    """Raise StallguardError if a live run guards or watches the process or one that started it, or is the process."""
    none: list[psutil.Process] = []
    family = {process.pid, *(one.pid for one in _read(process.parents, none))}
    for run in runs:
        if run_files.state(run) != "running":
            continue
        asked, attempt = run_files.asked(run), run_files.recall_attempt(run)
        if asked is not None and asked.supervisor.pid == process.pid:
            raise _taken(run, f"process {process.pid} is the stallguard of run {run.id}")
        if attempt is not None and attempt.process.pid in family and run_files.lives(attempt.process):
            does = "watches" if attempt.foreign else "guards"
            raise _taken(run, f"run {run.id} {does} process {process.pid} already")


def _taken(run: RunDir, what: str) -> StallguardError:
    return StallguardError(what, cure=f"stallguard status {run.id} shows its state", code=USAGE)


def _gone(pid: int, why: str) -> StallguardError:
    return StallguardError(f"process {pid} cannot be watched", why=why, code=NO_SUCH_RUN)


def _name(argv: list[str], named: str) -> str:
    """Return a name for the run: of the script or module of an interpreter, else of the program."""
    options = {"-c", "-"}
    return named if not argv or (len(argv) > 1 and argv[1] in options) else name_of(tuple(argv))


def _output(process: psutil.Process) -> Path | None:
    """Return the regular file that the process prints to."""
    none: dict[int, str] = {}
    files = _read(lambda: {one.fd: one.path for one in process.open_files()}, none)
    return next((Path(files[one]) for one in PRINTS_TO if one in files), None)


def _read(read: Callable[[], T], unknown: T) -> T:
    try:
        return read()
    except ERRORS:
        return unknown
