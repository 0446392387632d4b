"""Collectors: each gathers one kind of evidence about a process that may be stuck, within its budget.

A plug-in adds one through the entry-point group "stallguard.collectors": a Collector.  A collector writes
through its Sheet, which removes secrets and enforces the budget of bytes.  The budget of seconds is enforced by the
bundle, which runs each collector on a thread and abandons the thread when the time is up.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallguard.storage.run_files import Identity

if TYPE_CHECKING:
    from stallguard.collectors.evidence_text import Sheet

PLUGINS = "stallguard.collectors"
BUDGET = 10.0  # seconds for all collectors together: a restart waits no longer for its evidence
STACKS_SIGNAL = int(signal.SIGURG)
STACKS, STACKS_AGAIN = "stacks", "stacks-again"  # the collectors whose facts the manifest contains
MOVING, NEXT_DUMP = (
    "stacks-moving.txt",
    "\n-------- next dump\n",
)  # further dumps of a script that runs, and what separates them
COUNTERS = ("beats", "changes")  # of the probe's record: batches, and progress of any kind


class Nothing(Exception):
    """There is nothing to gather; the text says why."""


@dataclasses.dataclass(frozen=True)
class EvidenceContext:
    """The subject of the evidence, and how much of it to gather.  Fields with a default can be unknown."""

    incident: int
    pid: int  # the process that trains
    armed: bool  # its probe reported that it handles the stack-dump signal
    stacks: Path  # the file to which its handler appends
    directory: Path  # where the evidence goes
    run: Path | None = None  # the directory of the run: its journal and output
    root: int = 0  # the child; 0: the process that trains
    identity: Identity | None = None  # of `pid`: another process with the same number must not be signalled
    signal: int = STACKS_SIGNAL
    since: float = 0.0  # seconds since the epoch: when the attempt began
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the child
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)  # that the probe reported
    cwd: str = ""
    home: str = ""
    script: Path | None = None
    include_source: bool = False
    # Also gather what pauses the process for seconds: a debugger's stacks, a walk of its memory.
    deep: bool = False
    again: float = 0.0  # seconds until the stacks are taken once more, to see whether they move; 0: never
    budget: float = BUDGET
    # This process continues after the bundle: a collector that outlasts it can end later.
    lives_on: bool = False


Facts = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Collector:
    """One kind of evidence.

    `gather` writes into the sheet and can return facts for the manifest; it raises Nothing if there is no evidence,
    and any other exception if it fails.  `first`: lost soonest, gathered before all others, one after the other.
    `outlasts`: it does not need the process, so that no restart waits for it.
    """

    name: str
    gather: Callable[[EvidenceContext, Sheet], Facts | None]
    seconds: float
    size: int  # bytes
    first: bool = False
    deep: bool = False  # pauses the process for seconds: only if the context allows that
    outlasts: bool = False
