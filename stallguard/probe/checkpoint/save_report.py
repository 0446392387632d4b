"""Reports when checkpoints begin to fail, and when they succeed again: each change once, with what a kill would cost.

A full disk refuses each checkpoint of a night.  Its user must know while there is time to make room.
"""

from __future__ import annotations

import glob
import os
import time
from typing import TYPE_CHECKING

from . import announcements

if TYPE_CHECKING:
    from ..context import Context


class SaveReport:
    """The checkpoints of one process, from its start on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._since = time.monotonic()  # what was trained from then on is in no checkpoint
        self._fit = 0.0  # when the running fit began; 0: none has begun
        self._reported = ""  # the kind of failure that was reported last

    def saved(self, began: float) -> None:
        """Note that a checkpoint holds what was trained until `began` (monotonic seconds)."""
        self._since = began
        if self._reported:
            self._reported = ""
            self._context.note("saved", announcements.SAVED_AGAIN)

    def begins(self) -> None:
        """Note that a fit begins: what is trained from now on is lost if none of its checkpoints can be used."""
        now = time.monotonic()
        if not self._fit:  # before the first nothing was trained
            self._since = now
        self._fit = now

    def failed(self, error: Exception, folder: str) -> bool:
        """Note that no checkpoint could be written to `folder`; return whether that is news."""
        why = reason(error, self._context.checkpoint_directory or folder)
        kind = "%s %s" % (type(error).__name__, getattr(error, "errno", ""))
        return self._note(kind, announcements.NOT_WRITTEN % why, why, self._since, kept(folder))

    def refused(self, why: str, folder: str) -> None:
        """Note that no checkpoint of a fit that begins is made."""
        self.begins()
        self._note(why, announcements.NOT_WRITTEN % why, why, self._since, kept(folder))

    def lacks(self, names: str, folder: str) -> None:
        """Note that the checkpoint in `folder` lacks state: a resume cannot use it, nor an earlier one of its fit."""
        text = announcements.CHANGED % names
        others = [one for one in kept(folder) if os.path.dirname(one) != folder]
        self._note(names, text, text, self._fit, others)

    def _note(self, kind: str, text: str, why: str, since: float, kept: list[str]) -> bool:
        if kind == self._reported:
            return False
        self._reported = kind
        seconds = time.monotonic() - since
        text = announcements.not_saved(text, seconds, bool(kept))
        self._context.note("unsaved", text, why=why, seconds="%.0f" % seconds, kept=int(bool(kept)))
        return True


def kept(folder: str) -> list[str]:
    """Return the generations of all fits and loops of a process.  `folder`: of one of them."""
    return glob.glob(os.path.join(glob.escape(os.path.dirname(folder)), "*", "g[0-9]*"))


def reason(error: Exception, place: str) -> str:
    """Return why no checkpoint could be written below `place`, in the system's words."""
    if not isinstance(error, OSError) or not error.strerror:
        return "%s: %s" % (type(error).__name__, error)
    return "%s, in %s" % (error.strerror, place)
