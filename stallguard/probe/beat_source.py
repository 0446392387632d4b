"""Selects, of several hooks that observe the same batch, the one that counts it.

It returns how many batches an event stands for, and stores nothing in the record.
"""

from __future__ import annotations

from . import wire

# A lower rank has priority: the script's own calls, Keras' loops, eager updates, their gradients, and last the calls of
# graphs, of which a loop can make several in a batch.
_ORDER = (
    ("hand",), ("callbacks",), ("on_batch",), ("optimizer", "torch"), ("tape",), ("function",), ("session",),
    ("poll",),
)  # fmt: skip
RANK = {wire.SOURCES.index(name): rank for rank, names in enumerate(_ORDER) for name in names}
PATIENCE = 4  # events of a lower-ranked hook without one of the leader's: the script runs another loop now
_NONE = wire.SOURCES.index("none")


class Credit:
    """The hook that counts outside of Keras' loops."""

    __slots__ = ("_held", "_leader")

    def __init__(self) -> None:
        self._leader = _NONE
        self._held: dict[int, int] = {}  # events of lower-ranked hooks since the leader's last one

    def forget(self) -> None:
        """Select the hook again: another loop begins."""
        self._follow(_NONE)

    def _follow(self, source: int) -> None:
        self._leader = source
        self._held.clear()

    def of(self, source: int) -> int:
        """Return how many batches an event of `source` stands for; 0 if another hook counts them."""
        leader = self._leader
        if source == leader:
            if self._held:
                self._held.clear()
            return 1
        if not leader or RANK[source] < RANK[leader]:
            self._follow(source)
            return 0 if leader else 1  # the lower-ranked hook has counted this batch already
        waiting = self._held.get(source, 0) + 1
        if waiting < PATIENCE:
            self._held[source] = waiting
            return 0
        self._follow(source)
        return waiting
