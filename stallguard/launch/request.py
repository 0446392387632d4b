"""The user's request, resolved and written to run.json before the start.

Must not start anything.
"""

from __future__ import annotations

import datetime
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from stallguard.config import Loaded
from stallguard.core.text import quantity
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.launch import batch_option, resume_words
from stallguard.launch.command import Command, Disk, ProbeReach, choose_interpreter, reach, resolve
from stallguard.launch.earlier_run import NONE, heritage, take_over
from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir

# Bytes.  15 threads, each with a stack of 8 MB and up to 64 MB reserved by the C library: 1.2 GB were measured, and
# below 0.4 GB threads cannot start.  macOS does not enforce such a limit.
ADDRESSES = 1e9
# Open files: a run has 29 in the middle, and an attempt, its evidence and the verbs of a user need some at a time.
DESCRIPTORS = 64


class Inherited(NamedTuple):
    """Checkpoints from which a run resumes.  `run`: the run that made them, perhaps on another machine.

    `files`: that run's directory, or a copy of what a new run takes over from it.
    """

    run: str
    files: RunDir


class Request(NamedTuple):
    """A run that is about to begin."""

    run: RunDir
    words: tuple[str, ...]
    command: Command
    reach: ProbeReach
    cwd: Path
    continues: str = ""  # the run from whose checkpoints it resumes
    project: str = ""  # its root, if it can have another path on another machine

    def script(self) -> Path | None:
        """Return the file of Python that COMMAND names, None if it names none."""
        named = next((word for word in self.words if word.endswith(".py")), None)
        return self.cwd / named if named else None


def prepare(
    words: tuple[str, ...],
    loaded: Loaded,
    env: Mapping[str, str],
    cwd: Path,
    *,
    trial: bool = False,
    name: str = "",
    inherited: Inherited | None = None,
) -> Request:
    """Resolve COMMAND, make the run's directory and write run.json.  Raises StallguardError without leaving files.

    `trial`: of find-batch or compare; `name`: of the run, instead of the script's; `inherited`: in place of run.resume.
    """
    command = command_of(words, loaded, env, cwd)
    project = project_of(loaded, cwd)
    _refuse_what_cannot_be_supervised()
    reached = (
        reach(command.argv, Disk(env, str(cwd)))
        if loaded.config.run.probe
        else ProbeReach(False, "the probe is switched off")
    )
    wanted = loaded.config.run.resume
    if inherited is None and wanted not in ("", NONE):
        old = heritage(wanted, command.argv, cwd, project)
        inherited = Inherited(old.id, old)
    # UTC, so that the names sort by time across a change to or from summer time.
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%SZ")
    batch_option.given(command.argv, env, loaded.config.policy)  # raises now if the size cannot be determined
    resume_words.check(loaded.config)
    request = Request(paths.new_run(name or name_of(words), stamp, trial=trial), words, command, reached, cwd)
    request = request._replace(continues=inherited.run if inherited else "", project=project)
    _write_down(request, loaded, inherited)
    return request


def of_process(
    words: tuple[str, ...], argv: list[str], name: str, loaded: Loaded, cwd: Path, outside: str = ""
) -> Request:
    """Return the request of a watch over a process that is there already, with its directory and run.json.

    `words`, `argv`: what it runs, for people and as the system has it; `outside`: why no probe is in it, "" if one is.
    Raises StallguardError without leaving files.
    """
    _refuse_what_cannot_be_supervised()
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%SZ")
    reached = ProbeReach(not outside, outside)
    request = Request(paths.new_run(name, stamp), words, Command(argv, None), reached, cwd)
    _write_down(request, loaded, None)
    return request


def _refuse_what_cannot_be_supervised() -> None:
    run_files.require_processes()
    _refuse_too_little_memory()
    _refuse_too_few_descriptors()


def _refuse_too_little_memory() -> None:
    """With a limit that is too small for stallguard's threads, the training's output or its outcome would be lost."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if sys.platform == "darwin" or most == resource.RLIM_INFINITY or most >= ADDRESSES:
        return
    raise StallguardError(
        f"the address space is limited to {quantity(most, 'bytes')}",
        why=f"stallguard reserves {quantity(ADDRESSES, 'bytes')} for its threads, though it uses little of that; "
        "a training framework reserves more",
        cure="raise the limit (ulimit -v), or set it for the training alone: "
        "stallguard run -- sh -c 'ulimit -v KILOBYTES; exec python train.py'",
        code=CANNOT_RUN,
    )


def _refuse_too_few_descriptors() -> None:
    """With fewer, the run could not begin, or the training's end would be lost."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY or most >= DESCRIPTORS:
        return
    raise StallguardError(
        f"the number of open files is limited to {most}",
        why=f"stallguard needs {DESCRIPTORS}",
        cure="raise the limit (ulimit -n), or set it for the training alone: "
        f"stallguard run -- sh -c 'ulimit -n {most}; exec python train.py'",
        code=CANNOT_RUN,
    )


def command_of(words: tuple[str, ...], loaded: Loaded, env: Mapping[str, str], cwd: Path) -> Command:
    """Return what COMMAND starts.  Raises StallguardError."""
    place, chosen = Disk(env, str(cwd)), loaded.config.run.python or None
    return resolve(words, lambda: choose_interpreter(chosen, env, place.which, cwd=cwd), place)


def project_of(loaded: Loaded, cwd: Path) -> str:
    """Return the root of the project as the settings name it, "" if they do not.  Raises StallguardError."""
    named = loaded.config.store.project
    root = cwd / named
    if named and not cwd.resolve().is_relative_to(root.resolve()):
        raise StallguardError(
            f"the working directory {cwd} is not below store.project ({root})",
            cure="name the root of the project that the command belongs to",
            code=USAGE,
        )
    return str(root) if named else ""


def name_of(words: tuple[str, ...]) -> str:
    """Return a short name for COMMAND: that of its script or module."""
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return Path((scripts or list(words))[0]).stem


def _write_down(request: Request, loaded: Loaded, inherited: Inherited | None) -> None:
    chosen = request.command.interpreter
    value = run_files.RunRequest(
        schema=run_files.SCHEMA,
        id=request.run.id,
        command=list(request.words),
        argv=request.command.argv,
        cwd=str(request.cwd),
        began=run_files.utc(),
        supervisor=run_files.identity(os.getpid()),
        interpreter=chosen.path if chosen else "",
        interpreter_why=chosen.why if chosen else "",
        outside=request.reach.why,
        config=msgspec.to_builtins(loaded.config),
        origins=loaded.origins,
        continues=request.continues,
    )
    try:
        run_files.keep_asked(request.run, value)
        if inherited is not None:
            take_over(inherited.files, request.run)
    except OSError as error:
        import shutil

        shutil.rmtree(request.run.path, ignore_errors=True)
        raise StallguardError(
            f"cannot write in {request.run.path}",
            why=error.strerror or str(error),
            cure="make room there, or set STALLGUARD_HOME to another place",
            code=CANNOT_RUN,
        ) from error
