"""The evidence that each system has about a stuck process: tables to read and tools to run, as rows of data.

The rows are in host.darwin.evidence_tools and host.linux.evidence_tools; both have tables(pid), tools(pid, since, now),
main_wait(pid) and report_places().  Nothing there pauses a process unless its row says `deep`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Table(NamedTuple):
    """A text that stallguard makes itself.  `first`: perishable; `seconds`: after which it is given up."""

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
