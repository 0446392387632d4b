"""The generations that earlier attempts left of each fit of this process, by the fit's number."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .saved_generation import Saved, StartOver
from .store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

ALONE = "process"  # the folder of a process whose key is not known


class Records:
    """The stores of all fits of one process."""

    def __init__(self, folder: str, place: str, resuming: bool) -> None:
        self.folder = os.path.join(folder, place or ALONE)
        self.resuming = resuming

    def store(self, ordinal: int) -> Store:
        """Return the store of the fit of that number (from 1)."""
        return Store(os.path.join(self.folder, "fit-%04d" % ordinal))

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
