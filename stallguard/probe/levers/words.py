"""What the levers tell the supervisor: what was cut, what it does to the mathematics, what is out of reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from .. import wire

if TYPE_CHECKING:
    from ..context import Context

UNREACHED = (
    "{model} has a train_step of its own: its batch cannot be cut from outside; "
    "use --batch-flag, stallguard.batch_size() or stallguard.microbatches()"
)
WHOLE = "{model}: batches stay whole, because {reason}"


def _has(model: Any, kind: str) -> bool:
    layers: list[Any] = getattr(model, "_flatten_layers", list)()
    return any(kind in type(layer).__name__ for layer in layers)


class Announcer:
    """Says each thing once a model."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._told: WeakSet[Any] = WeakSet()
        self._unreached: set[type] = set()

    def cut(self, model: Any, uneven: bool = False) -> None:
        """Say that `model` trains its batches in slices now, and what that changes."""
        self._context.set("factor", self._context.factor)
        self._context.flag(wire.FLAG_SMALLER_BATCH)
        if model in self._told:
            return
        self._told.add(model)
        self._context.note("micro", self._sentence(model, uneven), model=type(model).__name__)

    def _sentence(self, model: Any, uneven: bool) -> str:
        said = f"each batch is trained in {self._context.factor} slices and one update, as if whole"
        if _has(model, "BatchNormalization"):
            said += "; BatchNormalization sees the slices, so its statistics are those of smaller batches"
        if _has(model, "Dropout"):
            said += "; dropout draws a mask a slice, so its draws are others than for a whole batch"
        if uneven:
            said += "; masked losses of several outputs are averaged slice by slice"
        return said

    def whole(self, model: Any, reason: str) -> None:
        """Say once that the batches of `model` are not cut, and why."""
        if model not in self._told:
            self._told.add(model)
            self._context.beyond(WHOLE.format(model=type(model).__name__, reason=reason))

    def unreached(self, model: Any) -> None:
        """Say once a class that its own train_step is out of reach."""
        if type(model) not in self._unreached:
            self._unreached.add(type(model))
            self._context.beyond(UNREACHED.format(model=type(model).__name__))
