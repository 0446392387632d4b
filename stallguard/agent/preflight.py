"""Refuses jobs that would fail when they start, at install, with the reason and the cure.

Reads the file system; must not change anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import stallguard
from stallguard.agent.job import AgentJob
from stallguard.agent.service_manager import LAUNCHD
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host.guarded_folders import guarded

# Caches in which tools keep environments that they can delete: uvx, uv run --with, pipx run.
FLEETING = re.compile(r"/uv/(archive|environments|builds)-v\d+/|/pipx/\.?cache/|/Caches/pipx/")


def check(job: AgentJob, interpreters: Sequence[str], words: Sequence[str], system: str, home: Path) -> None:
    """Raise StallguardError (exit code 126) for the first problem that would keep the job from running.

    `interpreters`: all that the job needs; `words`: COMMAND, whose paths the job reads.  On macOS every path of
    the job is checked: arguments, options, variables, and the location of stallguard itself.
    """
    for python in interpreters:
        check_interpreter(python)
    if not Path(job.cwd).is_dir():
        raise _refused(f"the working directory {job.cwd} is not there", "", "install from the folder of the project")
    if system == LAUNCHD:
        ours = str(Path(stallguard.__file__).parent)
        kept = [*_paths(job.run, Path(job.cwd)), *_paths(words, Path(job.cwd)), *_in_variables(job.env)]
        for path in (*interpreters, ours, job.cwd, job.log, *kept):
            check_guarded(Path(path), home)


def check_text(job: AgentJob) -> None:
    """Raise StallguardError (exit code 126) for text that a definition cannot contain.

    A unit takes a path as the rest of its line: a line break would start a new line, a backslash at the end would
    join the next line, and blanks at either end are dropped.  Both forms are UTF-8 without control characters;
    in an argument or a variable, tab and line break can be written.
    """
    for what, path in (("the working directory", job.cwd), ("the log", job.log), ("the interpreter", job.python)):
        _check_characters(what, path, _CONTROL)
        if path.endswith("\\") or path != path.strip():
            raise _refused(
                f"{what} {path!r} ends with a backslash or a blank",
                "a job's definition cannot contain such a path",
                "rename that folder, and install again",
            )
    for word in job.run:
        _check_characters("the argument", word, _CONTROL_IN_TEXT)
    for name, value in job.env.items():
        _check_characters(f"the variable {name!r}", name, _CONTROL)
        _check_characters(f"the value of {name},", value, _CONTROL_IN_TEXT)


_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_CONTROL_IN_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def _check_characters(what: str, text: str, refused: re.Pattern[str]) -> None:
    match = refused.search(text)
    if match is not None:
        name = "is not UTF-8" if "\ud800" <= match[0] <= "\udfff" else f"holds the character {match[0]!r}"
        raise _refused(f"{what} {text!r} {name}", "a job's definition cannot contain it", "rename it, or leave it out")


def check_interpreter(python: str) -> None:
    """Raise StallguardError if `python` does not start under a service manager."""
    path = Path(python)
    if not path.is_absolute():
        why = "a service manager uses neither your PATH nor your working directory"
        raise _refused(f"the interpreter {python} is not an absolute path", why, "give --python /full/path/to/python")
    if path.is_symlink() and not path.exists():
        why = f"it points to {path.readlink()}, which is gone: the Python that it was made from was moved or updated"
        raise _refused(
            f"the interpreter {python} leads nowhere", why, "create the environment again, then install again"
        )
    if not os.access(path, os.X_OK) or path.is_dir():
        raise _refused(f"there is no interpreter {python}", "", "give --python /full/path/to/python")
    base = _base_of(path)
    if base is not None and not base.exists():
        why = f"its pyvenv.cfg says that it was made from {base}, which is gone"
        raise _refused(f"the environment of {python} does not work", why, "create it again, then install again")
    if FLEETING.search(python) or FLEETING.search(str(path.resolve())):
        why = "it is in a cache that can be cleared at any time"
        raise _refused(
            f"the interpreter {python} can disappear before the job starts",
            why,
            "install it from its clone, with: uv tool install .",
        )


def _base_of(python: Path) -> Path | None:
    """Return the directory of the Python of a virtual environment; None if it is not a virtual environment."""
    try:
        text = (python.parent.parent / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^home\s*=\s*(.+?)\s*$", text, re.MULTILINE)
    return Path(match[1]) if match else None


def check_guarded(path: Path, home: Path) -> None:
    """Raise StallguardError if macOS does not let a job read `path`."""
    folder = guarded(path, home)
    if folder is not None:
        raise _refused(
            f"{path} is in a folder that macOS protects ({folder})",
            "a launchd job cannot read that folder, and there is no user to grant access when it starts",
            "move the project to a folder such as ~/train, and install again from there",
        )


def _paths(words: Sequence[str], cwd: Path) -> Iterator[str]:
    """Yield the words of COMMAND that are paths of existing files: the script and its data."""
    for word in words:
        for text in {word, word.rpartition("=")[2]}:
            if text and "\0" not in text and ("/" in text or text == words[0]):
                path = cwd / Path(text).expanduser() if text.startswith("~/") else cwd / text
                if os.path.lexists(path):
                    yield str(path)


def _in_variables(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the absolute paths in the variables of a job.

    PATH is left out: a program that is not found in one folder is searched for in the next.
    """
    for name, value in env.items():
        if name != "PATH":
            yield from (part for part in value.split(os.pathsep) if part.startswith("/") and "\0" not in part)


def _refused(what: str, why: str, cure: str) -> StallguardError:
    return StallguardError(what, why=why, cure=cure, code=CANNOT_RUN)


def foreign(name: str, where: str) -> StallguardError:
    """Return the error for a job of that name that stallguard did not make."""
    return _refused(
        f"there is a job named {name} that stallguard did not install",
        f"its definition is {where}",
        "choose another name with --name, or remove that job with the program that installed it",
    )
