"""The generations that earlier attempts left of each fit of this process, by the fit's number."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .. import process_key
from .generations import CURRENT
from .saved_generation import Saved, StartOver
from .store import CheckpointStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..context import Context

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
            except (
                StartOver,
                LookupError,
                TypeError,
                ValueError,
                AttributeError,
            ) as error:  # not ours, or edited
                complaints.append("a checkpoint of fit %d cannot be used (%s)" % (ordinal, error))

    def later(self, ordinal: int) -> bool:
        """Return whether an earlier attempt left a generation of a later fit: it had finished this one."""
        return self.resuming and any(one > ordinal and self.store(one).exists() for one in self._ordinals())

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
