"""A generation read back: what was saved of a fit, and where it stood."""

from __future__ import annotations

from typing import Any

from . import encoding, tensors
from .store import MADE, NEXT

FORMAT = 2


class StartOver(Exception):
    """A saved state must not be used; the text says why.  `seam`: one made between two epochs may be."""

    def __init__(self, reason: str, seam: bool = False) -> None:
        super().__init__(reason)
        self.seam = seam


class Saved:
    """What one generation holds.  Its arrays are mapped files: `drop` lets them go."""

    def __init__(self, facts: dict[str, Any], blobs: list[memoryview]) -> None:
        """Raises StartOver for a generation of another form, LookupError for one that lacks something."""
        if facts.get("format") != FORMAT:
            raise StartOver("it was written by another version of stallguard")
        self.facts = facts
        self.arrays = tensors.unpack(facts["tensors"], blobs)
        self.identity: dict[str, Any] = facts["identity"]
        self.epoch: int = facts["epoch"]  # the first that is not over, from 0
        self.executions: int = facts["executions"]  # of the train function in it
        self.drawn: int = facts["drawn"]  # batches from the iterator that was open
        self.ends: list[list[Any]] = facts[
            "ends"
        ]  # of each epoch before: came to its count of batches, batches
        self.epochs: int = facts["epochs"]  # that the script asked for
        self.finished: bool = facts["finished"]
        self.stopped: bool = facts["stop"]
        self.unkept: dict[str, str] = facts["unkept"]
        self.prints: dict[str, str] = {**facts["prints"], **facts.get(NEXT, {})}
        self.made: float = facts.get(MADE, 0.0)  # seconds since the epoch
        self.verified = True  # whether its fingerprints hold for the batches that come now

    @property
    def seam(self) -> bool:
        """Whether it was made between two epochs, or at the end."""
        return self.executions == 0

    def is_over(self, epochs: int) -> bool:
        """Whether no epoch is left of a fit that asks for so many."""
        return self.epoch >= epochs or (self.stopped and not epochs > self.epochs)

    def serves(self, epochs: int) -> bool:
        """Whether a fit of so many epochs can go on from it: not trained for longer, nor to the end without that."""
        return self.epoch <= epochs and (self.finished or not self.is_over(epochs))

    def resize(self, batch: int) -> int:
        """Count in batches of `batch` samples from now on; return the size before if that is another one."""
        before = self.facts.get("batch") or 0
        if not batch or not before or batch == before:
            return 0
        self.executions = self.executions * before // batch
        self.drawn = self.drawn * before // batch
        self.ends = [[complete, count * before // batch] for complete, count in self.ends]
        self.prints = {}  # other batches
        return int(before)

    def groups(self) -> dict[str, list[Any]]:
        """Return {name: arrays} of the groups of variables (variables.py)."""
        found, first = {}, 0
        for name, count in self.facts["groups"]:
            found[name] = self.arrays[first : first + count]
            first += count
        return found

    def random(self, moment: str) -> dict[str, Any]:
        """Return the generators' states at "open" (of the data's iterator) or "now" (of the save)."""
        found: dict[str, Any] = encoding.decode(self.facts["random"][moment], self.arrays)
        return found

    def decoded(self, name: str) -> Any:
        """Return a fact that is kept as plain values and arrays."""
        return encoding.decode(self.facts[name], self.arrays)

    def drop(self) -> None:
        """Let the arrays go: everything has been restored."""
        self.arrays = []
