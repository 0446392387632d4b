"""What earlier attempts left of each fit of the script, by its place in the order of fits."""

from __future__ import annotations

import os
from typing import Any

from .fit import Saved, StartOver
from .store import Store


def number(text: str | None, default: float) -> float:
    """Return a number of the environment, `default` where there is none or it is not one."""
    try:
        return float(text) if text else default
    except ValueError:
        return default


def history_of(history: Any) -> list[Any]:
    """Return [epochs, logs] of a History."""
    return [list(getattr(history, "epoch", [])), dict(getattr(history, "history", {}))]


class Records:
    """The stores of all fits under one folder."""

    def __init__(self, folder: str, resuming: bool) -> None:
        self._folder = folder
        self._resuming = resuming

    def store(self, ordinal: int) -> Store:
        """Return the store of the fit of that place (from 1)."""
        return Store(os.path.join(self._folder, "fit-%04d" % ordinal))

    def read(self, ordinal: int, number: int) -> tuple[Saved | None, list[str]]:
        """Return what was saved of a fit and the complaints about damaged generations.

        A short fit that was not saved by itself is found in a later fit of the same model (`number`): it is
        over, and its history is there.
        """
        if not self._resuming:
            return None, []
        found = self.store(ordinal).newest()
        if found is None:
            return self._passed(ordinal, number), []
        facts, blobs, complaints = found
        try:
            return Saved(facts, blobs), complaints
        except StartOver as error:
            return None, [*complaints, str(error)]

    def _passed(self, ordinal: int, number: int) -> Saved | None:
        for later in self._ordinals():
            found = self.store(later).newest() if later > ordinal else None
            if found is not None and found[0].get("number") == number:
                saved = Saved(found[0], found[1], own=False)
                return saved if str(ordinal) in saved.histories else None
        return None

    def _ordinals(self) -> list[int]:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return []
        return sorted(int(name[4:]) for name in names if name[:4] == "fit-" and name[4:].isdigit())
