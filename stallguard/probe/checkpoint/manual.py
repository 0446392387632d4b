"""`stallguard.checkpoint(save, load)`: checkpoints for loops of the script's own, stored as generations.

    stallguard.checkpoint(save, load)   # save(path) writes a file or folder there, load(path) reads it back

`load` is called at once if an earlier attempt left an intact checkpoint, and `save` after a beat whenever a checkpoint
is due.  An exception of `save` becomes a note; an earlier checkpoint is kept.  A checkpoint belongs to the process
that made it and to its `save` function: any other is refused with a note.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import TYPE_CHECKING, Any, Callable

from . import announcements, identity
from .generations import DAMAGE, DamagedGeneration, Generations, flush, read_facts
from .saved_generation import are_of_others
from .schedule import CheckpointSchedule, SaveReport

if TYPE_CHECKING:
    from ..context import Context

Action = Callable[[str], Any]


class Manual:
    """The checkpoints of one pair of functions."""

    def __init__(self, context: Context, folder: str, pace: CheckpointSchedule, save: Action, name: str) -> None:
        """`name`: of the file that `save` writes; some formats require a certain extension."""
        self._context = context
        self._generations = Generations(folder)
        self._pace = pace
        self._save = save
        self._name = name
        self._report = SaveReport(context)

    def load(self, load: Action) -> bool:
        """Call `load` with the newest intact checkpoint; return False if there is none.  Raises what `load` raises."""
        try:
            self._generations.check_room()
        except OSError as error:  # said now, not after the first minutes
            self._report.failed(error, self._generations.folder)
        if not self._context.resuming:
            return False
        damaged: list[str] = []
        for folder in self._generations.candidates():
            try:
                facts = read_facts(folder)
                verify(folder, facts["files"])
            except DAMAGE as error:
                damaged.append(announcements.DAMAGED % (os.path.basename(folder), error))
                continue
            if facts.get("of") != self._identity():
                self._context.note("inexact", announcements.ANOTHERS % facts.get("of", {}).get("save"))
                return False
            reasons = identity.differences(facts)
            previous = [announcements.PREVIOUS % one for one in damaged]
            text = "; ".join([*reasons, announcements.LOADED, *previous])
            self._context.note("inexact" if reasons else "resume", text)
            with self._context.phase("checkpoint"):
                load(os.path.join(folder, self._name))
            return True
        if damaged:
            self._context.note("inexact", announcements.LOOP_STARTS_OVER % "; ".join(damaged))
        elif are_of_others(self._context):
            self._context.note("inexact", announcements.OF_OTHERS % "the script's loop")
        return False

    def tick(self, asked: bool = False, _between_epochs: bool = False) -> None:
        """Save after a batch, if a checkpoint is due, or the supervisor has asked for one."""
        now = time.monotonic()
        if asked or now >= self._pace.next:
            self.save(now)

    def save(self, began: float) -> None:
        """Save now; never raises."""
        try:
            with self._context.own_work(), self._context.phase("checkpoint"):
                self._generations.make(self._fill)
            self._report.saved(began)
            self._context.saved()
        except Exception as error:
            self._report.failed(error, self._generations.folder)
        self._pace.saved(began, time.monotonic())

    def _fill(self, folder: str) -> dict[str, Any]:
        """Write the checkpoint's files to the disk; return its facts.  "files": {path: [size, CRC-32]}."""
        self._save(os.path.join(folder, self._name))
        files = flushed(folder)
        losses = self._context.losses
        return {
            "finite": None if not losses.known else not losses.broken,
            "files": files, "of": self._identity(), "script": identity.script(), "versions": identity.versions(),
        }  # fmt: skip

    def finite(self) -> str:
        """Return when the newest checkpoint with a finite loss was made, in words; "" if there is none."""
        found = self._generations.finite()
        return "" if found is None else announcements.FINITE_LOOP % announcements.clock(found[1])

    def _identity(self) -> dict[str, str]:
        save = self._save
        made_by = "%s.%s" % (getattr(save, "__module__", ""), getattr(save, "__qualname__", self._name))
        return {"place": self._context.place, "save": made_by, "name": self._name}


def flushed(folder: str) -> dict[str, list[int]]:
    """Write the files in a folder to the disk; return {path: [size, CRC-32]}.  Raises OSError."""
    paths = sorted(
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
        if (place, name) != (folder, "facts.json")
    )
    files = {}
    for path in paths:
        with open(os.path.join(folder, path), "rb+") as file:
            flush(file)
            files[path] = _check(file)
    return files


def _check(file: Any) -> list[int]:
    size = check = 0
    for piece in iter(lambda: file.read(1 << 20), b""):
        size, check = size + len(piece), zlib.crc32(piece, check)
    return [size, check]


def verify(folder: str, files: dict[str, list[int]]) -> None:
    """Raise DamagedGeneration or OSError if a file is not as `flushed` found it."""
    for name, expected in files.items():
        with open(os.path.join(folder, name), "rb") as file:
            if _check(file) != expected:
                raise DamagedGeneration("%s does not match its checksum" % name)
