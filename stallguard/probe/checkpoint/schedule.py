"""Decides when a checkpoint is due, and reports when checkpoints begin to fail, and when they succeed again.

The decision is pure: from times in seconds and the cost of the last one.  Each change is reported once, with what a
kill would cost.  A full disk refuses each checkpoint of a night.  Its user must know while there is time to make room.
"""

from __future__ import annotations

import glob
import os
import time
from typing import TYPE_CHECKING

from . import announcements

if TYPE_CHECKING:
    from ..context import Context

FIRST = 20.0  # the first one in a process, if its epoch is longer
# The checkpoint at a fit's end, without which the fit would be trained again, can cost this share of the fit's time ...
FIT_SHARE = 0.05
CREDIT = 200.0  # ... as long as all of them together cost no more than this times `share` beyond it: 2 s
LEAST = 0.02  # s in which the objects of most scripts are read


class CheckpointSchedule:
    """Decides for one process; `now` is any monotonic clock in seconds.

    `every`: seconds between two checkpoints inside an epoch; `share`: of the training's time, for all of them.
    """

    def __init__(self, every: float, share: float, now: float) -> None:
        self.every = every
        self.share = max(share, 1e-6)
        self.cost = 0.0
        self._began = now
        self._last: float | None = None
        self._credit = CREDIT * self.share
        self._digests = 0.0
        self.next = now + min(every, FIRST)

    def due(self, now: float, between_epochs: bool) -> bool:
        """Return whether to save now; `between_epochs`: an epoch or a fit just ended."""
        if not between_epochs:
            return now >= self.next
        return self._last is None or now - self._last >= self._rest()

    def at_end(self, now: float, seconds: float) -> bool:
        """Return whether to save now that a fit of `seconds` has ended."""
        if self.due(now, between_epochs=True):
            return True
        if self.cost > min(FIT_SHARE * seconds, self._credit):
            return False
        self._credit -= self.cost
        return True

    def allowance(self, now: float) -> float:
        """Return the seconds for reading the state of objects in full, also beside saves: `share` of all, CREDIT."""
        return max(LEAST, self.share * (now - self._began + CREDIT) - self._digests)

    def digested(self, seconds: float) -> None:
        """Register the time of reading the state of objects, in a save or beside one."""
        self._digests += seconds

    def ask(self, now: float) -> None:
        """Have the next checkpoint be due now; what the last one cost does not count."""
        self.next = now

    def saved(self, begin: float, end: float) -> None:
        """Register a save or a failed one: the next one is due no earlier than its cost allows."""
        self.cost = end - begin
        self._last = end
        self.next = end + max(self.every, self._rest())

    def wrote(self, cost: float, now: float) -> None:
        """Register the whole cost of a save that was written by the thread, after `saved`."""
        self.cost = cost
        self.next = max(self.next, now + self._rest())

    def _rest(self) -> float:
        """Return the seconds between saves at which cost / (cost + rest) = share."""
        return self.cost * (1.0 / self.share - 1.0)


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
