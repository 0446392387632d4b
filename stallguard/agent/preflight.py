"""What would fail at night and nobody would see: refused at install, with the reason and the cure.

Looks at the file system; may not change anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import stallguard
from stallguard.agent.job import Job
from stallguard.agent.job_files import LAUNCHD
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host.guarded_folders import guarded

# Where tools keep environments that they throw away at will: uvx, uv run --with, pipx run.
FLEETING = re.compile(r"/uv/(archive|environments|builds)-v\d+/|/pipx/\.?cache/|/Caches/pipx/")


def check(job: Job, interpreters: Sequence[str], words: Sequence[str], system: str, home: Path) -> None:
    """Raise StallguardError (exit code 126) for the first thing that would keep the job from running at night.

    `interpreters`: all that the job needs; `words`: COMMAND, whose paths the job will want to read.  On macOS every
    path that the job keeps is looked at: arguments, options, variables, and where stallguard itself is.
    """
    for python in interpreters:
        check_interpreter(python)
    if not Path(job.cwd).is_dir():
        raise _refused(
            f"the working directory {job.cwd} is not there", "", "install from the folder of the project"
        )
    if system == LAUNCHD:
        ours = str(Path(stallguard.__file__).parent)
        kept = [*_paths(job.run, Path(job.cwd)), *_paths(words, Path(job.cwd)), *_in_variables(job.env)]
        for path in (*interpreters, ours, job.cwd, job.log, *kept):
            check_guarded(Path(path), home)


def check_text(job: Job) -> None:
    """Raise StallguardError (exit code 126) for text that a definition cannot hold as it is.

    A unit takes a path as the rest of its line: a line break would begin a line of its own, a backslash at the end
    would swallow the next line, and blanks at either end are dropped.  Both forms are UTF-8 without control characters;
    in an argument or a variable, tab and line break can be written.
    """
    for what, path in (
        ("the working directory", job.cwd),
        ("the log", job.log),
        ("the interpreter", job.python),
    ):
        _check_characters(what, path, _CONTROL)
        if path.endswith("\\") or path != path.strip():
            raise _refused(
                f"{what} {path!r} ends with a backslash or a blank",
                "a definition of a job cannot hold such a path",
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
        raise _refused(
            f"{what} {text!r} {name}", "a definition of a job cannot hold it", "rename it, or leave it out"
        )


def check_interpreter(python: str) -> None:
    """Raise StallguardError where `python` will not start under a service manager."""
    path = Path(python)
    if not path.is_absolute():
        why = "a service manager has neither your PATH nor your working directory"
        raise _refused(
            f"the interpreter {python} is not an absolute path", why, "give --python /full/path/to/python"
        )
    if path.is_symlink() and not path.exists():
        why = f"it points to {path.readlink()}, which is gone: the Python that it was made from was moved or updated"
        raise _refused(
            f"the interpreter {python} leads nowhere", why, "make the environment anew, then install again"
        )
    if not os.access(path, os.X_OK) or path.is_dir():
        raise _refused(f"there is no interpreter {python}", "", "give --python /full/path/to/python")
    base = _base_of(path)
    if base is not None and not base.exists():
        why = f"its pyvenv.cfg says that it was made from {base}, which is gone"
        raise _refused(
            f"the environment of {python} does not work any more", why, "make it anew, then install again"
        )
    if FLEETING.search(python) or FLEETING.search(str(path.resolve())):
        why = "it is in a cache that is cleared at will"
        raise _refused(
            f"the interpreter {python} may be gone tonight",
            why,
            "install it from its clone, with: uv tool install .",
        )


def _base_of(python: Path) -> Path | None:
    """Return the directory of the Python that a virtual environment was made from; None where it is none."""
    try:
        text = (python.parent.parent / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^home\s*=\s*(.+?)\s*$", text, re.MULTILINE)
    return Path(match[1]) if match else None


def check_guarded(path: Path, home: Path) -> None:
    """Raise StallguardError where macOS would not let a job read `path`."""
    folder = guarded(path, home)
    if folder is not None:
        raise _refused(
            f"{path} is in a folder that macOS guards ({folder})",
            "a job of launchd may not read there, and cannot be asked for the right at night",
            "move the project to a folder such as ~/train, and install again from there",
        )


def _paths(words: Sequence[str], cwd: Path) -> Iterator[str]:
    """Yield what of COMMAND is a path to something that exists: the script, and data that it is given."""
    for word in words:
        for text in {word, word.rpartition("=")[2]}:
            if text and "\0" not in text and ("/" in text or text == words[0]):
                path = cwd / Path(text).expanduser() if text.startswith("~/") else cwd / text
                if os.path.lexists(path):
                    yield str(path)


def _in_variables(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the absolute paths in the variables of a job.

    PATH is left out: where a program is not found in one folder, it is looked for in the next.
    """
    for name, value in env.items():
        if name != "PATH":
            yield from (part for part in value.split(os.pathsep) if part.startswith("/") and "\0" not in part)


def _refused(what: str, why: str, cure: str) -> StallguardError:
    return StallguardError(what, why=why, cure=cure, code=CANNOT_RUN)


def foreign(name: str, where: str) -> StallguardError:
    """Return the error for a job of that name that stallguard did not make."""
    return _refused(
        f"there is a job named {name} that is not stallguard's",
        f"its definition is {where}",
        "take another name with --name, or remove that job by its own means",
    )
