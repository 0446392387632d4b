"""The rows that darwin_evidence and linux_evidence are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Table(NamedTuple):
    """A text that we make ourselves.  `first`: perishable; `seconds`: after which it is given up."""

    name: str
    read: Callable[[], str]
    seconds: float
    first: bool = False


class Tool(NamedTuple):
    """A program of the system.

    `deep`: it pauses the process for seconds; `outlasts`: it does not need the process, and may end after the restart.
    """

    name: str
    argv: tuple[str, ...]
    seconds: float
    size: int = 256 << 10  # bytes of its text that are kept
    deep: bool = False
    outlasts: bool = False
