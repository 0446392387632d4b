"""Collectors: each gathers one kind of evidence about a process that can be stuck, within its budget.

A plug-in adds one through the entry-point group "stallguard.collectors": a Collector.  A collector writes its files
through its Sheet: without secrets, within its budget of bytes, not after its time.  A full disk is recorded, not
raised: the collector's facts are useful without its files.  The budget of seconds is enforced by the bundle, which runs
each collector on a thread and abandons the thread when the time is up.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.collectors.redact import Redactor
from stallguard.storage import private
from stallguard.storage.run_files import Identity

PLUGINS = "stallguard.collectors"
BUDGET = 10.0  # seconds for all collectors together: a restart waits no longer for its evidence
STACKS_SIGNAL = int(signal.SIGURG)
STACKS, STACKS_AGAIN = "stacks", "stacks-again"  # the collectors whose facts the manifest contains
# Further dumps of a script that runs, and what separates them.
MOVING, NEXT_DUMP = "stacks-moving.txt", "\n-------- next dump\n"
COUNTERS = ("beats", "changes")  # of the probe's record: batches, and progress of any kind

HALF_SECRET = 512  # bytes left out at a cut in a text without lines


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


class File(msgspec.Struct, frozen=True):
    """A file of the bundle.  `cut`: there was more than the budget allows."""

    name: str
    size: int  # bytes
    cut: bool = False


class Sheet:
    """Writes files into `directory` until `limit` bytes are spent or the sheet is closed."""

    def __init__(self, directory: Path, limit: int, redactor: Redactor) -> None:
        """`redactor`: one per collector, because it counts."""
        self.redactor = redactor
        self.trouble = ""
        self._directory = directory
        self.left = limit  # bytes that can still be written
        self._files: dict[str, File] = {}
        self.closed = False  # True: the collector's time is up, and further writes are refused

    @property
    def files(self) -> tuple[File, ...]:
        """What has been written."""
        return tuple(self._files.values())

    def text(self, name: str, text: str) -> None:
        """Write a text; a second one of the same name replaces it."""
        self.data(name, text.encode(errors="surrogateescape"))

    def data(self, name: str, data: bytes) -> None:
        """Write bytes."""
        fitting = fit(data, self.left)
        clean = self.redactor.data(fitting)
        self._write(name, clean[: self.left], cut=len(fitting) < len(data) or len(clean) > self.left)

    def json(self, name: str, value: Any) -> None:
        """Write a value as JSON."""
        self.clean_json(name, self.redactor.value(msgspec.to_builtins(value)))

    def clean_json(self, name: str, value: Any) -> None:
        """Write a value without secrets as JSON."""
        encoded = msgspec.json.format(jsontext.readable(value), indent=1)
        self._write(name, encoded[: self.left], cut=len(encoded) > self.left)

    def _write(self, name: str, data: bytes, *, cut: bool) -> None:
        if self.closed:
            return
        try:
            private.replace(self._directory / name, data)
        except OSError as error:
            self.trouble = f"{name}: {error.strerror}"
            return
        self.left -= len(data) - (self._files[name].size if name in self._files else 0)
        self._files[name] = File(name, len(data), cut)


def fit(data: bytes, limit: int) -> bytes:
    """Return the beginning of `data` that fits, in whole lines: a part of a secret would not be recognised."""
    if len(data) <= limit:
        return data
    return data[: data.rfind(b"\n", 0, limit) + 1 or max(0, limit - HALF_SECRET)]
