"""Values that both systems return: what the machine is set to do, and the evidence about a stuck process.

None: the system did not say.  The rows of evidence, tables to read and tools to run, are in host.darwin.evidence_tools
and host.linux.evidence_tools; both have tables(pid), tools(pid, since, now), main_wait(pid) and report_places().
Nothing there pauses a process unless its row says `deep`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec


class Sleep(msgspec.Struct, frozen=True):
    """How the machine goes to sleep by itself.  None: not known."""

    after: float | None = None  # seconds of idleness; 0 is never
    prevented_by: tuple[str, ...] = ()  # programs that keep it awake now
    low_power: bool | None = None  # set to save power at the cost of speed


class ListedGpu(msgspec.Struct, frozen=True):
    """A GPU as the system lists it."""

    name: str
    cores: int | None = None
    virtual: bool = False  # a virtual machine's: it shows a screen and cannot compute


class Preferences(msgspec.Struct, frozen=True):
    """What the machine is set to do when it is not used, and the GPUs that it lists."""

    sleep: Sleep | None = None
    gpus: tuple[ListedGpu, ...] | None = None
    wakes: tuple[str, ...] = ()  # times of day at which it wakes by itself, each day


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
