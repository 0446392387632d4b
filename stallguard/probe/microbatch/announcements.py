"""What the levers say to the supervisor: what is cut, what differs in it, what stays whole and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import wire

if TYPE_CHECKING:
    from ..context import Context

NO_OPTIMIZER = "the model has no optimizer"
REPLICAS = "a distribution strategy hands them out"
COMPILED = "torch.compile traces the step"
OUT_OF_REACH = "its train_step is its own"
NEVER_CALLED = "its train_step never comes to the framework's own"
COMPILED_STEP = "its train_step is a tf.function"
OWN_ITERATOR = "its train_step may draw from %r, which no comparison can put back"
TOO_EARLY = (
    "its step is traced before its first batch is known"  # by a resume: traced anew then, and not said
)
UNSEEN = "its step is called by a loop of the script's own"

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

    def sliced(self, model: Any, text: str) -> None:
        """Report once that `model` trains its batches in slices; `text` names what that changes."""
        self._say(model, "micro", text, factor=self._context.factor)

    def whole(self, model: Any, reason: str) -> None:
        """Say once that the batches of `model` are not cut, and why."""
        if reason == TOO_EARLY:
            return
        self._context.set("factor", 1)
        self._context.flag(wire.FLAG_SMALLER_BATCH, False)
        if reason == OUT_OF_REACH:
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
