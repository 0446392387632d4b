"""Where Keras' loop is, in beats: what counts them is `beats`, what is stored here changes once an epoch.

A resumed attempt goes on inside an epoch: its first batch there is not the epoch's first.
"""

from __future__ import annotations


class LoopPosition:
    """The beats when the fit and the epoch began, and when the epoch will end; -1 and None if that is not known."""

    __slots__ = ("_pending", "epoch", "fit", "last")

    def __init__(self) -> None:
        self.fit = self.last = -1
        self.epoch: int | None = (
            None  # less than 0 if earlier attempts trained more of it than this one has in all
        )
        self._pending = 0  # batches that earlier attempts trained of the epoch that begins next

    def fit_begins(self, beats: int) -> None:
        """Begin a fit."""
        self.fit, self.epoch, self._pending = beats, None, 0

    def fit_ends(self) -> None:
        """End the fit."""
        self.fit, self.epoch = -1, None

    def epoch_begins(self, beats: int, batches: int) -> int:
        """Begin an epoch of `batches`, -1 if that is not known; return how many earlier attempts trained of it."""
        before, self._pending = self._pending, 0
        self.epoch = beats - before
        self.last = self.epoch + batches if batches > 0 else -1
        return before

    def goes_on(self, before: int) -> None:
        """Note that earlier attempts trained `before` batches of the epoch, or of the next one if none has begun."""
        if self.epoch is None:  # Keras 2 moves the data to their position before it begins the epoch
            self._pending = before
            return
        self.epoch -= before
        if self.last > 0:
            self.last -= before

    def ended(self, beats: int, index: int, stride: int) -> int:
        """Return how many batches ended with the one that Keras calls `index`, if it runs `stride` at once."""
        count = index - (beats - (self.epoch or 0)) + 1
        if count <= 1:
            count = stride  # Keras 3.0 to 3.5 gives the first index of an execution, not the last
        return min(count, self.last - beats) if self.last > 0 else count  # the last execution can be shorter
