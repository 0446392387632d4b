"""Gathers the evidence of an incident before the restart, within a budget of seconds and bytes.

Evidence that is lost soonest comes first, one collector after the other; then all others at once, because each tool
of a system with a stuck GPU can hang.  Every collector has its own daemon thread, which is abandoned when its time is
up. Collectors that do not need the process can end later, and the manifest is written again then. Nothing here
raises: errors are in the manifest, and the restart follows.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.collectors import (
    COUNTERS,
    STACKS,
    STACKS_AGAIN,
    Collector,
    EvidenceContext,
    Facts,
    File,
    Nothing,
    Sheet,
)
from stallguard.collectors.redact import Redactor
from stallguard.core.events import Collected
from stallguard.host import system
from stallguard.storage import private, run_files
from stallguard.worker import REFUSALS, Worker

__all__ = ["EvidenceContext", "Item", "Manifest", "collect", "gather"]

SCHEMA = 1
COLLECTED, NOTHING, FAILED, LATE, PENDING = "collected", "nothing", "failed", "late", "pending"


class Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one collector.  `state`: collected, nothing (and why), failed (and why), late, pending."""

    name: str
    state: str
    seconds: float
    why: str = ""
    files: tuple[File, ...] = ()
    facts: dict[str, Any] = {}
    removed: dict[str, int] = {}  # by rule of redact.py


class Manifest(msgspec.Struct, frozen=True):
    """manifest.json: what was collected, how long it took, what failed and why, what was removed.

    `where`: the script's line at which it hangs; `moved`: whether a later dump differed, None without one.
    """

    schema: int
    incident: int
    utc: str
    pid: int
    seconds: float
    size: int
    where: str
    classes: tuple[str, ...]
    fingerprint: str
    moved: bool | None
    missing: tuple[str, ...]
    removed: dict[str, int]
    items: tuple[Item, ...]


def collect(context: EvidenceContext) -> Collected:
    """Gather the evidence of an incident; return the event for the core."""
    manifest = gather(context)
    return Collected(
        at=system.monotonic(), incident=context.incident, seconds=manifest.seconds, where=manifest.where,
        stacks=manifest.classes, fingerprint=manifest.fingerprint, missing=manifest.missing,
    )  # fmt: skip


def gather(context: EvidenceContext, collectors: Sequence[Collector] | None = None) -> Manifest:
    """Gather into `context.directory` and write manifest.json there; return it even if that fails."""
    began = time.monotonic()
    broken: list[Item] = []
    with contextlib.suppress(OSError):  # every collector reports why it could not write
        private.ensure(context.directory)
    if collectors is None:
        # This import takes 20 ms, which must not delay the start of the training.
        from stallguard.collectors import collector_registry

        def unloaded(name: str, error: Exception) -> None:
            broken.append(Item(name, FAILED, 0.0, why=f"{type(error).__name__}: {error}"))

        collectors = collector_registry.collectors(context, unloaded)
    works = _run(collectors, context, began + context.budget)
    pending = [work for work in works if work.is_pending]
    seconds = time.monotonic() - began
    manifest = _manifest(context, [*(work.item() for work in works), *broken], seconds)
    _write(context.directory, manifest)

    def complete() -> None:
        for work in pending:
            work.wait(float("inf"))
        _write(context.directory, _manifest(context, [*(work.item() for work in works), *broken], seconds))

    if pending:
        with contextlib.suppress(*REFUSALS):  # what is pending stays so in the manifest
            Worker(complete, "collect-rest").start()
    return manifest


def _run(collectors: Iterable[Collector], context: EvidenceContext, until: float) -> list[Collection]:
    """Run the collectors, those marked `first` one after the other; wait for all, not beyond `until`."""
    works = [Collection(collector, context) for collector in collectors]
    rest = [work for work in works if not work.collector.first]
    for work in works:
        if work.collector.first:
            work.start()
            work.wait(until)
    for work in rest:
        work.start()
    for work in rest:
        if not (work.collector.outlasts and context.lives_on):
            work.wait(until)
    return works


class Collection:
    """One collector on its thread."""

    def __init__(self, collector: Collector, context: EvidenceContext) -> None:
        """Prepare without running."""
        self.collector = collector
        self._sheet = Sheet(
            context.directory, collector.size, Redactor(context.environment, context.argv, context.home)
        )
        self._thread = Worker(partial(self._gather, context), f"collect-{collector.name}")
        self._began = self._seconds = 0.0
        self._state, self._why = LATE, "it did not end in time"
        self._facts: dict[str, Any] = {}

    def start(self) -> None:
        """Begin to gather.  Without a thread this one item is missing."""
        self._began = time.monotonic()
        try:
            self._thread.start()
        except REFUSALS as error:
            self._state, self._why = FAILED, f"{type(error).__name__}: {error}"

    def wait(self, until: float) -> None:
        """Wait for the end, at most the collector's own seconds and not beyond `until`; then close the sheet."""
        self._thread.join(max(0.0, min(self._began + self.collector.seconds, until) - time.monotonic()))
        self._sheet.closed = True
        self._seconds = self._seconds or time.monotonic() - self._began

    @property
    def is_pending(self) -> bool:
        """Whether it still gathers and is allowed to."""
        return not self._sheet.closed and self._thread.is_alive()

    def _gather(self, context: EvidenceContext) -> None:
        try:
            facts: Facts = self.collector.gather(context, self._sheet) or {}
            end = (COLLECTED, "", dict(facts))
        except Nothing as nothing:
            end = (NOTHING, str(nothing), {})
        except Exception as error:  # noqa: BLE001 - one failed collector must not take the others with it
            end = (FAILED, f"{type(error).__name__}: {error}", {})
        if not self._sheet.closed:
            self._seconds = time.monotonic() - self._began
            self._state, self._why, self._facts = end

    def item(self) -> Item:
        """Return the result."""
        sheet, state, why = self._sheet, self._state, self._why
        if self.is_pending:
            state, why = PENDING, "it does not need the process, and ends after the restart"
        if state == COLLECTED and sheet.trouble:
            state, why = (COLLECTED if sheet.files else FAILED), sheet.trouble
        removed = {rule: count for rule, count in sheet.redactor.removed.items() if count}
        why = sheet.redactor.text(why)
        return Item(self.collector.name, state, round(self._seconds, 3), why, sheet.files, self._facts, removed)


def _manifest(context: EvidenceContext, items: Sequence[Item], seconds: float) -> Manifest:
    facts = {item.name: item.facts for item in items}
    first, again = facts.get(STACKS, {}), facts.get(STACKS_AGAIN, {})
    classes = dict.fromkeys(kind for item in items for kind in item.facts.get("classes", ()))
    mark = first.get("fingerprint", "")
    moved: bool | None = None
    if mark and again:
        # Two dumps of a fast loop often show the same place, so the counters are compared as well.
        moved = any(first.get(fact) != again.get(fact) for fact in ("fingerprint", *COUNTERS))
    removed: Counter[str] = Counter()
    for item in items:
        removed.update(item.removed)
    return Manifest(
        schema=SCHEMA,
        incident=context.incident,
        utc=run_files.utc(),
        pid=context.pid,
        seconds=round(seconds, 3),
        size=sum(file.size for item in items for file in item.files),
        where=first.get("where", ""),
        classes=tuple(classes),
        fingerprint=mark,
        moved=moved,
        missing=tuple(item.name for item in items if item.state in (FAILED, LATE)),
        removed=dict(removed),
        items=tuple(items),
    )


def _write(directory: Path, manifest: Manifest) -> None:
    """Write manifest.json, whole or not at all; the files are useful without it."""
    with contextlib.suppress(OSError):  # a full disk: the event has the main facts
        text = msgspec.json.format(jsontext.readable(manifest), indent=1)
        private.replace(directory / "manifest.json", text + b"\n")
