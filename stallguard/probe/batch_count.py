"""Which hook counts a batch, and which batch of its fit and its epoch it is.

Several hooks can see one batch: the update of an optimizer, the call of a graph in which it is, and the script's own
`stallguard.beat()`.  Outside of the loops of libraries the hook of the lowest rank that still observes something
counts.
"""

from __future__ import annotations

from . import wire

# A lower rank has priority: the script's own calls, Keras' loops, eager updates, their gradients, and last the calls of
# graphs, of which a loop can make several in a batch.
_ORDER = (
    ("hand",), ("callbacks",), ("on_batch",), ("optimizer", "torch", "mlx"), ("tape",), ("function",), ("session",),
    ("poll",),
)  # fmt: skip
RANK = {wire.SOURCES.index(name): rank for rank, names in enumerate(_ORDER) for name in names}
PATIENCE = 4  # events of a lower-ranked hook without one of the leader's: the script runs another loop now
_NONE = wire.SOURCES.index("none")


class Credit:
    """The hook that counts outside of Keras' loops."""

    __slots__ = ("held", "leader")

    def __init__(self) -> None:
        self.leader = _NONE
        self.held: dict[int, int] = {}  # events of lower-ranked hooks since the leader's last one

    def forget(self) -> None:
        """Select the hook again: another loop begins."""
        self._follow(_NONE)

    def _follow(self, source: int) -> None:
        self.leader = source
        self.held.clear()

    def of(self, source: int) -> int:
        """Return how many batches an event of `source` stands for; 0 if another hook counts them."""
        leader = self.leader
        if source == leader:
            if self.held:
                self.held.clear()
            return 1
        if not leader or RANK[source] < RANK[leader]:
            self._follow(source)
            return 0 if leader else 1  # the lower-ranked hook has counted this batch already
        waiting = self.held.get(source, 0) + 1
        if waiting < PATIENCE:
            self.held[source] = waiting
            return 0
        self._follow(source)
        return waiting


class LoopPosition:
    """The beats when the fit and the epoch began, and when the epoch will end; -1 and None if that is not known."""

    __slots__ = ("_pending", "epoch", "fit", "last")

    def __init__(self) -> None:
        self.fit = self.last = -1
        # Less than 0 if earlier attempts trained more of it than this one has in all.
        self.epoch: int | None = None
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
