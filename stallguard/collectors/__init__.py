"""Collectors: each gathers one kind of evidence about a process that may be stuck, within its budget.

A plug-in adds one through the entry-point group "stallguard.collectors": a Collector.  What a collector writes
goes through its Sheet, which removes secrets and keeps to the budget of bytes; its budget of seconds is kept by
whoever runs it, on a thread that is left behind when the time is up.
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
BUDGET = 10.0  # seconds for all collectors together: no restart waits longer for its evidence
STACKS_SIGNAL = int(signal.SIGUSR1)
STACKS, STACKS_AGAIN = "stacks", "stacks-again"  # the collectors whose facts the manifest repeats
COUNTERS = ("beats", "changes")  # of the probe's record: batches, and progress of any kind


class Nothing(Exception):
    """There is nothing to gather here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Context:
    """What the evidence is about, and how much of it is wanted.  Fields with a default may be unknown."""

    incident: int
    pid: int  # the process that trains
    armed: bool  # it said that the stack-dump signal may be sent
    stacks: Path  # the file to which that signal makes it append
    directory: Path  # where the evidence goes
    run: Path | None = None  # the directory of the run: its journal and output
    root: int = 0  # the child; 0: the process that trains
    identity: Identity | None = None  # of `pid`: a stranger with the same number is left alone
    signal: int = STACKS_SIGNAL
    since: float = 0.0  # seconds since the epoch: when the attempt began
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the child
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)  # that the probe told
    cwd: str = ""
    home: str = ""
    script: Path | None = None
    include_source: bool = False
    deep: bool = False  # also what pauses the process for seconds: a debugger's stacks, a walk of its memory
    again: float = 0.0  # seconds until the stacks are taken once more, to see whether they move; 0: never
    budget: float = BUDGET
    lives_on: bool = (
        False  # this process goes on when the bundle is done: a collector that outlasts it may end later
    )


Facts = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Collector:
    """One kind of evidence.

    `gather` writes into the sheet and may return facts for the manifest; it raises Nothing where there is none,
    and anything else where it failed.  `first`: perishable, gathered before all others, one after the other.
    `outlasts`: it does not need the process, so that no restart waits for it.
    """

    name: str
    gather: Callable[[Context, Sheet], Facts | None]
    seconds: float
    size: int  # bytes
    first: bool = False
    deep: bool = False  # pauses the process for seconds: only where the context wants that
    outlasts: bool = False
