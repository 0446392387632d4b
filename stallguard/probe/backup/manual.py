"""`stallguard.checkpoint(save, load)`: checkpoints for loops of the script's own, in the same generations.

    stallguard.checkpoint(save, load)   # save(path) writes a file or folder there, load(path) reads it back

`load` is called at once where an earlier attempt left a checkpoint that verifies, `save` from a beat whenever
the pace says so.  What `save` raises becomes a note; the checkpoint before stays.
"""

from __future__ import annotations

import os
import time
import zlib
from typing import TYPE_CHECKING, Any, Callable

from . import words
from .generations import Damaged, Generations, flush, read_facts
from .pace import Pace

if TYPE_CHECKING:
    from ..context import Context

Action = Callable[[str], Any]


class Manual:
    """The checkpoints of one pair of functions."""

    def __init__(self, context: Context, folder: str, pace: Pace, save: Action, name: str) -> None:
        """`name`: of the file that `save` is asked to write; some formats want a certain ending."""
        self._context = context
        self._generations = Generations(folder)
        self._pace = pace
        self._save = save
        self._name = name

    def load(self, load: Action) -> bool:
        """Call `load` with the newest checkpoint that verifies; False where there is none.

        What `load` itself raises goes to the script: half a state must not train on.
        """
        for folder in self._generations.candidates():
            try:
                _verify(folder, read_facts(folder)["files"])
            except (Damaged, OSError, KeyError, ValueError) as error:
                self._context.note("resume", words.DAMAGED % (os.path.basename(folder), error))
                continue
            with self._context.phase("checkpoint"):
                load(os.path.join(folder, self._name))
            self._context.note("resume", words.LOADED)
            return True
        return False

    def tick(self) -> None:
        """A batch ended: save where it is time to."""
        now = time.monotonic()
        if now >= self._pace.next:
            self.save(now)

    def save(self, began: float) -> None:
        """Save now; never raises."""
        try:
            with self._context.phase("checkpoint"):
                self._generations.write(self._fill)
            self._context.add("saves")
        except Exception as error:
            self._context.note("save", words.NOT_SAVED % error)
        self._pace.saved(began, time.monotonic())

    def _fill(self, folder: str) -> dict[str, Any]:
        self._save(os.path.join(folder, self._name))
        return {"files": _seal(folder)}


def _files(folder: str) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(place, name), folder)
        for place, _, names in os.walk(folder)
        for name in names
        if (place, name) != (folder, "facts.json")
    )


def _seal(folder: str) -> dict[str, list[int]]:
    """Bring all files to the disk and return {path: [size, CRC-32]}."""
    found = {}
    for name in _files(folder):
        with open(os.path.join(folder, name), "rb+") as file:
            flush(file)
            found[name] = _check(file)
    return found


def _check(file: Any) -> list[int]:
    size = check = 0
    while True:
        piece = file.read(1 << 20)
        if not piece:
            return [size, check]
        size, check = size + len(piece), zlib.crc32(piece, check)


def _verify(folder: str, files: dict[str, list[int]]) -> None:
    for name, expected in files.items():
        with open(os.path.join(folder, name), "rb") as file:
            if _check(file) != expected:
                raise Damaged("%s does not match its checksum" % name)
