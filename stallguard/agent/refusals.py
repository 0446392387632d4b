"""What would fail at night and nobody would see: refused at install, with the reason and the cure.

Looks at the file system; may not change anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from stallguard.agent.job import Job
from stallguard.agent.places import LAUNCHD
from stallguard.errors import CANNOT_RUN, StallguardError

# Folders that macOS guards (TCC): a job of launchd has none of the Terminal's rights there, and what is granted to
# an interpreter is lost at its next update.
GUARDED = ("Desktop", "Documents", "Downloads", "Library/Mobile Documents", "Library/CloudStorage")
VOLUMES = Path("/Volumes")
# Where tools keep environments that they throw away at will: uvx, uv run --with, pipx run.
FLEETING = re.compile(r"/uv/(archive|environments|builds)-v\d+/|/pipx/\.?cache/|/Caches/pipx/")


def check(job: Job, interpreters: Sequence[str], words: Sequence[str], system: str, home: Path) -> None:
    """Raise StallguardError (exit code 126) for the first thing that would keep the job from running at night.

    `interpreters`: all that the job needs; `words`: COMMAND, whose paths the job will want to read.
    """
    for python in interpreters:
        check_interpreter(python)
    if not Path(job.cwd).is_dir():
        raise _refused(
            f"the working directory {job.cwd} is not there", "", "install from the folder of the project"
        )
    if system == LAUNCHD:
        touched = [*interpreters, job.cwd, job.log, *_paths(words, Path(job.cwd))]
        for path in touched:
            check_guarded(Path(path), home)


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


def guarded(path: Path, home: Path) -> str | None:
    """Return the guarded folder that `path` is in, links followed; None where it is in none."""
    real, base = _folded(path.resolve()), _folded(home.resolve())
    for folder in GUARDED:
        if _is_in(real, (*base, *_folded(Path(folder)))):
            return f"~/{folder}"
    if _is_in(real, _folded(VOLUMES)) and len(real) > len(VOLUMES.parts):
        return str(Path(*path.resolve().parts[:3]))
    return None


def _folded(path: Path) -> tuple[str, ...]:
    """Return the parts of a path as the file system of a Mac compares them."""
    return tuple(part.casefold() for part in path.parts)


def _is_in(parts: tuple[str, ...], folder: tuple[str, ...]) -> bool:
    return parts[: len(folder)] == folder


def _paths(words: Sequence[str], cwd: Path) -> Iterator[str]:
    """Yield what of COMMAND is a path to something that exists: the script, and data that it is given."""
    for word in words:
        for text in {word, word.rpartition("=")[2]}:
            if text and "\0" not in text and ("/" in text or text == words[0]):
                path = cwd / Path(text).expanduser() if text.startswith("~/") else cwd / text
                if os.path.lexists(path):
                    yield str(path)


def _refused(what: str, why: str, cure: str) -> StallguardError:
    return StallguardError(what, why=why, cure=cure, code=CANNOT_RUN)


def foreign(name: str, where: str) -> StallguardError:
    """Return the error for a job of that name that stallguard did not make."""
    return _refused(
        f"there is a job named {name} that is not stallguard's",
        f"its definition is {where}",
        "take another name with --name, or remove that job by its own means",
    )
