"""One row of the table: what is done, what is promised, and a function that does it and says what was seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from .stage import Stage

Check = Callable[[Stage], str]
Needs = Callable[[], str]  # returns why a fault cannot be made here, "" if it can


class Fault(NamedTuple):
    """A row.  `check` does what `done` says and returns what it saw; it raises Broken if the promise is broken."""

    name: str
    done: str
    promised: str
    check: Check
    quick: bool = True  # short enough for the test suite
    needs: Needs = lambda: ""


FAULTS: list[Fault] = []  # of all modules that are imported, each in the order of its text


def anywhere() -> str:
    return ""


def row(*, quick: bool = True, needs: Needs = anywhere) -> Callable[[Check], Check]:
    """Decorate a check: its name is the row's, its docstring says `what is done -> what is promised`."""

    def add(check: Check) -> Check:
        done, _, promised = " ".join((check.__doc__ or "").split()).partition(" -> ")
        FAULTS.append(Fault(check.__name__.replace("_", "-"), done, promised, check, quick, needs))
        return check

    return add


def linux() -> str:
    """Say that the fault is made with a call that only Linux has."""
    return "" if sys.platform == "linux" else "only Linux has what makes it"


def mounts() -> str:
    """Say whether small file systems can be mounted here."""
    if linux():
        return linux()
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)
    return "mounting needs root" if tried.returncode else ""
