"""Which Python runs a script: one rule for `run`, `drill`, `doctor` and jobs.

In this order: --python, the active environment, `.venv` or `venv` of the project (the directories from the working
one upwards, as uv and poetry look for it), python3 on PATH, stallguard's own.  A project whose environment is elsewhere
(poetry, pipenv, pixi, conda) is recognised by its files: the choice then says how to select that environment.

Pure: the environment, the file system and the search along PATH enter as arguments.  Must not start anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stallguard.errors import NOT_FOUND, StallguardError

Which = Callable[[str], str | None]

# The variable of an activated environment, and the kind of that environment.
ACTIVE = (("VIRTUAL_ENV", "the virtual environment"), ("CONDA_PREFIX", "the conda environment"))


LOCAL = (".venv", "venv")
# A file of a project whose environment is elsewhere: how to start a program in that environment.
SIGNS = (
    ("poetry.lock", "poetry run"),
    ("uv.lock", "uv run"),
    ("Pipfile", "pipenv run"),
    ("pixi.toml", "pixi run"),
    ("pdm.lock", "pdm run"),
    ("environment.yml", "conda run -n NAME --no-capture-output"),
    ("environment.yaml", "conda run -n NAME --no-capture-output"),
)


class Choice(NamedTuple):
    """An interpreter, and why it was chosen, for the journal."""

    path: str
    why: str
    hint: str = ""  # how to select the project's environment, if it was not found


def choose(
    python: str | None,
    env: Mapping[str, str],
    which: Which,
    own: str = sys.executable,
    cwd: Path | None = None,
    there: Callable[[Path], bool] = Path.exists,
) -> Choice:
    """Return the interpreter: `python`, else the active environment's, the project's, PATH's python3, stallguard's.

    `python`: the option, a path, a name on PATH or the directory of an environment; empty if not given.
    `which`: as shutil.which, None if it cannot be run.  `cwd`: where the project is searched for,
    None: nowhere; `there`: whether a file exists.  Raises StallguardError (127) if `python` does not exist.
    """
    if python:
        return _asked_for(python, which)
    if (found := next(_environments(env, which, cwd), None)) is not None:
        return found
    hint = _hint(cwd, there)
    if python3 := which("python3"):
        return Choice(python3, "python3 on PATH; no environment is active", hint)
    return Choice(own, "stallguard's own: there is no active environment and no python3", hint)


def _asked_for(python: str, which: Which) -> Choice:
    for candidate in (python, f"{python.rstrip('/')}/bin/python"):
        if found := which(candidate):
            return Choice(found, "chosen with --python")
    raise StallguardError(
        f"no such interpreter: {python}",
        cure="give --python the path of a Python, a name on PATH, or an environment's directory",
        code=NOT_FOUND,
    )


def _environments(env: Mapping[str, str], which: Which, cwd: Path | None) -> Iterator[Choice]:
    for variable, kind in ACTIVE:
        home = env.get(variable)
        if home and (
            found := which(f"{home}/bin/python")
        ):  # the variable remains after an environment is deleted
            yield Choice(found, f"{kind} {home} is active")
    for directory in _upwards(cwd):
        for name in LOCAL:
            if found := which(f"{directory / name}/bin/python"):
                yield Choice(found, f"the environment {directory / name} of the project")


def _upwards(cwd: Path | None) -> tuple[Path, ...]:
    return (cwd, *cwd.parents[:-1]) if cwd is not None else ()


def _hint(cwd: Path | None, there: Callable[[Path], bool]) -> str:
    """Return how to start the script in the project's own environment; "" if there are no signs of one."""
    for directory in _upwards(cwd):
        for sign, starter in SIGNS:
            if there(directory / sign):
                its = f"{directory / sign} belongs to another environment"
                return f"{its}: {starter} stallguard run, or --python PATH"
    return ""
