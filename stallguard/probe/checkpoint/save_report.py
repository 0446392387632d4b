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
        self._reported = ""  # the kind of failure that was reported last

    def saved(self, began: float) -> None:
        """Note that a checkpoint holds what was trained until `began` (monotonic seconds)."""
        self._since = began
        if self._reported:
            self._reported = ""
            self._context.note("saved", announcements.SAVED_AGAIN)

    def failed(self, error: Exception, folder: str) -> bool:
        """Note that no checkpoint could be written to `folder`; return whether that is news."""
        kind = "%s %s" % (type(error).__name__, getattr(error, "errno", ""))
        if kind == self._reported:
            return False
        self._reported = kind
        # Of any fit or loop of this process.
        is_kept = any(glob.iglob(os.path.join(glob.escape(os.path.dirname(folder)), "*", "g[0-9]*")))
        place = self._context.checkpoint_directory or folder
        why, seconds = reason(error, place), time.monotonic() - self._since
        text = announcements.not_saved(why, seconds, is_kept)
        self._context.note("unsaved", text, why=why, seconds="%.0f" % seconds, kept=int(is_kept))
        return True


def reason(error: Exception, place: str) -> str:
    """Return why no checkpoint could be written below `place`, in the system's words."""
    if not isinstance(error, OSError) or not error.strerror:
        return "%s: %s" % (type(error).__name__, error)
    return "%s, in %s" % (error.strerror, place)
