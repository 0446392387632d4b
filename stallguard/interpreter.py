"""Which Python runs a script: one rule, for `run`, `drill` and `doctor` alike.

Pure: the environment and the search along PATH enter as arguments.  This module may not start anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from stallguard.errors import NOT_FOUND, StallguardError

Which = Callable[[str], str | None]

# The variable that an activated environment leaves behind, and what such an environment is called.
ACTIVE = (("VIRTUAL_ENV", "the virtual environment"), ("CONDA_PREFIX", "the conda environment"))


class Choice(NamedTuple):
    """An interpreter, and why it is that one, in words for the journal."""

    path: str
    why: str


def choose(python: str | None, env: Mapping[str, str], which: Which, own: str = sys.executable) -> Choice:
    """Return the interpreter: `python`, else the active environment's, else PATH's python3, else our own.

    `python`: the option, a path, a name on PATH or the directory of an environment; empty where not given.
    `which`: as shutil.which, None for what cannot be run.  Raises StallguardError (127) where `python` is none.
    """
    if python:
        return _asked_for(python, which)
    return next(
        _candidates(env, which),
        Choice(own, "stallguard's own: there is no active environment and no python3"),
    )


def _asked_for(python: str, which: Which) -> Choice:
    for candidate in (python, f"{python.rstrip('/')}/bin/python"):
        if found := which(candidate):
            return Choice(found, "asked for with --python")
    raise StallguardError(
        f"no such interpreter: {python}",
        cure="give --python the path of a Python, a name on PATH, or an environment's directory",
        code=NOT_FOUND,
    )


def _candidates(env: Mapping[str, str], which: Which) -> Iterator[Choice]:
    for variable, kind in ACTIVE:
        home = env.get(variable)
        if home and (found := which(f"{home}/bin/python")):  # the variable outlives a deleted environment
            yield Choice(found, f"{kind} {home} is active")
    if found := which("python3"):
        yield Choice(found, "python3 on PATH; no environment is active")
