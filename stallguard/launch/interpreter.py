"""Which Python runs a script: one rule for `run`, `drill`, `doctor` and jobs.

In this order: --python, the active environment, `.venv` or `venv` of the project (the directories from the working
one upwards, as uv and poetry look for it), python3 on PATH, stallguard's own.  A project whose environment is elsewhere
(poetry, pipenv, pixi, conda) is recognised by its files: the choice then says how to select that environment.

Pure: the environment, the file system and the search along PATH enter as arguments.  Must not start anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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


class InterpreterChoice(NamedTuple):
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
) -> InterpreterChoice:
    """Return the interpreter: `python`, else the active environment's, the project's, PATH's python3, stallguard's.

    `python`: the option, a path, a name on PATH or the directory of an environment; empty if not given.
    `which`: as shutil.which, None if it cannot be run.  `cwd`: where the project is searched for,
    None: nowhere; `there`: whether a file exists.  Raises StallguardError (127) if `python` does not exist.
    """
    if python:
        for candidate in (python, f"{python.rstrip('/')}/bin/python"):
            if found := which(candidate):
                return InterpreterChoice(found, "chosen with --python")
        raise StallguardError(
            f"no such interpreter: {python}",
            cure="give --python the path of a Python, a name on PATH, or an environment's directory",
            code=NOT_FOUND,
        )
    for variable, kind in ACTIVE:
        home = env.get(variable)  # which remains after the environment is deleted
        if home and (found := which(f"{home}/bin/python")):
            return InterpreterChoice(found, f"{kind} {home} is active")
    upwards = (cwd, *cwd.parents[:-1]) if cwd is not None else ()
    for environment in (directory / name for directory in upwards for name in LOCAL):
        if found := which(f"{environment}/bin/python"):
            return InterpreterChoice(found, f"the environment {environment} of the project")
    hint = ""
    for sign, starter in ((directory / name, starter) for directory in upwards for name, starter in SIGNS):
        if there(sign):
            hint = f"{sign} belongs to another environment: {starter} stallguard run, or --python PATH"
            break
    if python3 := which("python3"):
        return InterpreterChoice(python3, "python3 on PATH; no environment is active", hint)
    return InterpreterChoice(own, "stallguard's own: there is no active environment and no python3", hint)
