"""Decides when a checkpoint is due, from times and from the cost of the last one.  Pure; all times in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..settings import ProbeSettings

EVERY = 300.0  # a checkpoint inside an epoch at most this often
FIRST = 20.0  # the first one in a process, if its epoch is longer
SHARE = 0.01  # of the training time, at most, for checkpoints
# The checkpoint at a fit's end, without which the fit would be trained again, can cost this share of the fit's time ...
FIT_SHARE = 0.05
CREDIT = 200.0  # ... as long as all of them together cost no more than this times SHARE beyond SHARE: 2 s
LEAST = 0.02  # s in which the objects of most scripts are read


class CheckpointSchedule:
    """Decides for one process; `now` is any monotonic clock in seconds."""

    def __init__(self, every: float = EVERY, share: float = SHARE, now: float = 0.0) -> None:
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
        """Return the seconds for reading the state of the script's objects in full: SHARE of all time, and CREDIT.

        What is read beside saves counts too, so that it does not come on top of them.
        """
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


def of_settings(settings: ProbeSettings, now: float) -> CheckpointSchedule:
    """Return the schedule with the interval and the share that the supervisor sets."""
    return CheckpointSchedule(settings.every, settings.cost, now)
