"""What the levers say to the supervisor: what is cut, what differs in it, what stays whole and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import wire
from . import batch_structure, step_hooks

if TYPE_CHECKING:
    from ..context import Context
    from .compare import Comparison

UNREACHED = (
    "{model} has a train_step of its own: its batch cannot be cut from outside; "
    "use --batch-flag, stallguard.batch_size() or stallguard.microbatches()"
)
SLICED = (
    "each batch is trained in {factor} slices and one update, as if whole (compared on {rows} of its rows)"
)
NORMALISED = "; BatchNormalization ({layers}) sees the slices, so its statistics are those of smaller batches"
DRAWN = "; {layers} draws anew for each slice, so its draws are others than for a whole batch"
DRAWN_BY_SEVERAL = "; {layers} draw anew for each slice, so their draws are others than for a whole batch"
LOGGED = "; the logged {metrics} is computed slice by slice and differs from that of a whole batch"
ROUNDED = "; it computes in 16 bits, where the sum over slices rounds otherwise than that of a whole batch"
WHOLE = (
    "{model}: batches stay whole, because {reason}; --batch-flag and --batch-env give a script its batch size"
)


class Announcer:
    """Says each thing once a model."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._said: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._unreached: set[type] = set()

    def cut(self) -> None:
        """Say in the record that batches are trained in slices now."""
        self._context.set("factor", self._context.factor)
        self._context.flag(wire.FLAG_SMALLER_BATCH)

    def sliced(self, model: Any, comparison: Comparison) -> None:
        """Say that `model` trains its batches in slices from now on, and what that changes."""
        self._say(model, "micro", sentence(comparison), factor=self._context.factor)

    def whole(self, model: Any, reason: str) -> None:
        """Say once that the batches of `model` are not cut, and why."""
        if reason == step_hooks.TOO_EARLY:
            return
        self._context.set("factor", 1)
        self._context.flag(wire.FLAG_SMALLER_BATCH, False)
        if reason == step_hooks.OUT_OF_REACH:
            return  # said already: see `unreached`
        self._say(model, "whole", WHOLE.format(model=type(model).__name__, reason=reason), **self._whole())

    def _whole(self) -> dict[str, int]:
        """Return the fact that batches have one part; none where other fits may get fewer rows instead."""
        return {} if "STALLGUARD_REALLY" in self._context.environment else {"factor": 1}

    def _say(self, model: Any, kind: str, said: str, **facts: int) -> None:
        if self._said.get(model) != said:
            self._said[model] = said
            self._context.note(kind, said, model=type(model).__name__, **facts)

    def unreached(self, model: Any) -> None:
        """Say once a class that its own train_step is out of reach."""
        if type(model) in self._unreached or self._context.told:
            return
        self._unreached.add(type(model))
        self._context.beyond(UNREACHED.format(model=type(model).__name__))
        if "stallguard" not in sys.modules:  # else the script may cut its batches itself
            self._context.note("whole", UNREACHED.format(model=type(model).__name__), **self._whole())


def sentence(comparison: Comparison) -> str:
    """Return what is said of batches that are trained in slices."""
    said = SLICED.format(factor=comparison.factor, rows=comparison.rows)
    drawing = sorted(comparison.draws.layers)
    if comparison.normalisations:
        said += NORMALISED.format(layers=batch_structure.listed(comparison.normalisations))
    if drawing:
        said += (DRAWN if len(drawing) == 1 else DRAWN_BY_SEVERAL).format(
            layers=batch_structure.listed(drawing)
        )
    if comparison.metrics:
        said += LOGGED.format(metrics=batch_structure.listed(comparison.metrics))
    if batch_structure.is_half(comparison.model):
        said += ROUNDED
    return said
