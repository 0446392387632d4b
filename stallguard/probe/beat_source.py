"""Which of several hooks that see one batch counts it: the best of those that were heard.

May not store anything in the record: it only says how many batches an event stands for.
"""

from __future__ import annotations

from . import wire

# Lower counts first.  The script's own word, then Keras' loops, then an update made eagerly, its gradient, and
# only then calls of graphs, of which a loop may make several a batch.
_ORDER = (
    ("hand",), ("callbacks",), ("on_batch",), ("optimizer", "torch"), ("tape",), ("function",), ("session",),
    ("poll",),
)  # fmt: skip
RANK = {wire.SOURCES.index(name): rank for rank, names in enumerate(_ORDER) for name in names}
PATIENCE = 4  # events of a lesser hook without one of the leader's: the script has moved on to another loop
_NONE = wire.SOURCES.index("none")


class Credit:
    """The hook that counts, outside of Keras' loops."""

    __slots__ = ("_held", "_leader")

    def __init__(self) -> None:
        self._leader = _NONE
        self._held: dict[int, int] = {}  # events of lesser hooks since the leader's last

    def forget(self) -> None:
        """Another loop begins: who counts in it is open."""
        self._follow(_NONE)

    def _follow(self, source: int) -> None:
        self._leader = source
        self._held.clear()

    def of(self, source: int) -> int:
        """Return how many batches an event of `source` stands for; 0 where another hook counted them."""
        leader = self._leader
        if source == leader:
            if self._held:
                self._held.clear()
            return 1
        if not leader or RANK[source] < RANK[leader]:
            self._follow(source)
            return 0 if leader else 1  # the lesser hook has counted this very batch
        waiting = self._held.get(source, 0) + 1
        if waiting < PATIENCE:
            self._held[source] = waiting
            return 0
        self._follow(source)
        return waiting
