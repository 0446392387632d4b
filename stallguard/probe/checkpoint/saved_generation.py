"""A generation that was read back: the saved state and position of a fit; and those that earlier attempts left."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from .. import process_key
from . import encoding, tensors
from .generations import CURRENT, MADE, NEXT, CheckpointStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..context import Context

FORMAT = 2


class StartOver(Exception):
    """A saved state must not be used; the text says why.  `between_epochs`: one made between two epochs can be."""

    def __init__(self, reason: str, between_epochs: bool = False) -> None:
        super().__init__(reason)
        self.between_epochs = between_epochs


class Saved:
    """The content of one generation.  Its arrays are mapped files; `drop` releases them."""

    def __init__(self, facts: dict[str, Any], blobs: list[memoryview]) -> None:
        """Raises StartOver for a generation of another format, or with names of functions that it must not contain.

        LookupError, TypeError, ValueError or AttributeError for an incomplete one.
        """
        if facts.get("format") != FORMAT:
            raise StartOver("it was written by another version of stallguard")
        self.facts = facts
        refused = encoding.refused([facts["random"], facts["history"], facts.get("logs")])
        if refused:
            raise StartOver("it must not contain %s" % refused)
        self.arrays = tensors.unpack(facts["tensors"], blobs)
        self.identity: dict[str, Any] = facts["identity"]
        self.epoch: int = facts["epoch"]  # the first unfinished one, from 0
        self.executions: int = facts["executions"]  # calls of the train function in it
        self.drawn: int = facts["drawn"]  # batches from the open iterator
        # Of each finished epoch: whether it reached its number of batches, and its batches.
        self.ends: list[list[Any]] = facts["ends"]
        self.epochs: int = facts["epochs"]  # as the script passed it
        self.finished: bool = facts["finished"]
        self.stopped: bool = facts["stop"]
        self.unkept: dict[str, str] = facts["unkept"]
        self.prints: dict[str, str] = {**facts["prints"], **facts.get(NEXT, {})}
        self.made: float = facts.get(MADE, 0.0)  # seconds since 1970
        self.verified = True  # the batches are compared with its fingerprints

    @property
    def between_epochs(self) -> bool:
        """Whether it was made between two epochs, or at the fit's end."""
        return self.executions == 0

    def is_over(self, epochs: int) -> bool:
        """Return whether a fit of so many epochs has none left."""
        return self.epoch >= epochs or (self.stopped and not epochs > self.epochs)

    def serves(self, epochs: int) -> bool:
        """Return whether a fit of so many epochs can continue from it: it has not more epochs, nor an unsaved end."""
        return self.epoch <= epochs and (self.finished or not self.is_over(epochs))

    def resize(self, batch: int) -> int:
        """Count in batches of `batch` samples from now on; return the previous size if it differs, otherwise 0."""
        before = self.facts.get("batch") or 0
        if not batch or not before or batch == before:
            return 0
        self.executions = self.executions * before // batch
        self.drawn = self.drawn * before // batch
        self.ends = [[complete, count * before // batch] for complete, count in self.ends]
        self.prints = {}  # of batches of the previous size
        self.facts["first"] = tensors.RESIZED
        return int(before)

    def groups(self) -> dict[str, list[Any]]:
        """Return {name: arrays} of the groups of variables (variables.py)."""
        found, first = {}, 0
        for name, count in self.facts["groups"]:
            found[name] = self.arrays[first : first + count]
            first += count
        return found

    def random(self, moment: str) -> dict[str, Any]:
        """Return the generators' states as the data "first" opened, last opened ("open"), or at the save ("now")."""
        kept = self.facts["random"].get(moment)
        found: dict[str, Any] = {} if kept is None else encoding.decode(kept, self.arrays)
        return found

    def decoded(self, name: str) -> Any:
        """Return a fact that is encoded as plain values and arrays."""
        return encoding.decode(self.facts[name], self.arrays)

    def drop(self) -> None:
        """Release the arrays: everything has been restored."""
        self.arrays = []


ALONE = "process"  # the folder of a process whose key is not known
_PLACE = re.compile(r"([0-9a-f]{16})-\d+")


def are_of_others(context: Context) -> bool:
    """Return whether a process that was not started in this attempt has checkpoints.

    If this process has none, it can be that one: its arguments, directory or variables are others at each start.
    """
    saved, pages = context.checkpoint_directory, context.settings.pages
    if not (context.resuming and pages):
        return False
    started, token = os.path.join(pages, process_key.FOLDER), str(context.settings.token)
    try:
        others = [one for one in map(_PLACE.fullmatch, os.listdir(saved)) if one]
        return any(
            os.path.exists(os.path.join(saved, one.group(), name, CURRENT))
            for one in others
            if not os.path.exists(os.path.join(started, "%s-%s" % (one.group(1), token)))
            for name in os.listdir(os.path.join(saved, one.group()))
        )
    except OSError:
        return False


class AttemptRecords:
    """The stores of all fits of one process."""

    def __init__(self, folder: str, place: str, resuming: bool) -> None:
        self.folder = os.path.join(folder, place or ALONE)
        self.resuming = resuming

    def store(self, ordinal: int) -> CheckpointStore:
        """Return the store of the fit of that number (from 1)."""
        return CheckpointStore(os.path.join(self.folder, "fit-%04d" % ordinal))

    def found(self, ordinal: int, complaints: list[str]) -> Iterator[Saved]:
        """Yield the usable generations of a fit, newest first; add the errors of the others to `complaints`."""
        if not self.resuming:
            return
        for facts, blobs in self.store(ordinal).found(complaints):
            try:
                yield Saved(facts, blobs)
            except (StartOver, LookupError, TypeError, ValueError, AttributeError) as error:
                # Not ours, or edited.
                complaints.append("a checkpoint of fit %d cannot be used (%s)" % (ordinal, error))

    def later(self, ordinal: int) -> bool:
        """Return whether an earlier attempt left a generation of a later fit: it had finished this one."""
        return self.resuming and any(one > ordinal and self.store(one).names() for one in self._ordinals())

    def start_over(self, ordinal: int) -> int:
        """Remove what this fit saved, and the records of all later ones.  Return how many later ones there were."""
        try:
            self.store(ordinal).start_over()
        except OSError:  # a checkpoint that is left would be used: rather none, and no record of the files
            self.store(ordinal).forget()
        return self.forget_from(ordinal + 1)

    def forget_from(self, ordinal: int) -> int:
        """Remove the records of this fit and of all later ones, which depend on it.  Return how many."""
        stale = [one for one in self._ordinals() if one >= ordinal]
        for one in stale:
            self.store(one).forget()
        return len(stale)

    def _ordinals(self) -> list[int]:
        try:
            names = os.listdir(self.folder)
        except OSError:
            return []
        return sorted(int(name[4:]) for name in names if name[:4] == "fit-" and name[4:].isdecimal())
