"""The notes on slices: which batches are sliced, what that changes, which stay whole and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import wire

if TYPE_CHECKING:
    from ..context import Context

NO_OPTIMIZER = "the model has no optimizer"
REPLICAS = "a distribution strategy distributes them"
COMPILED = "torch.compile traces the step"
OUT_OF_REACH = "its train_step is its own"
NEVER_CALLED = "its train_step does not call the framework's own"
COMPILED_STEP = "its train_step is a tf.function"
OWN_ITERATOR = "its train_step can draw from %r, which a comparison cannot restore"
# A resume traces the step so early; it is traced again later, and this reason is not reported.
TOO_EARLY = "its step is traced before its first batch is known"
UNSEEN = "a loop of the script's own calls its step"

UNREACHED = (
    "{model} has a train_step of its own, so stallguard cannot slice its batches; "
    "use --batch-flag, stallguard.batch_size() or stallguard.microbatches()"
)
SLICED = "each batch is trained in {slices} slices and one update, as if whole (compared on {rows} of its rows)"
NORMALISED = "; BatchNormalization ({layers}) computes its statistics from slices, which are smaller batches"
DRAWN = "; {layers} draws random numbers for each slice, not for the whole batch"
DRAWN_BY_SEVERAL = "; {layers} draw random numbers for each slice, not for the whole batch"
LOGGED = "; the logged {metrics} is computed slice by slice and differs from that of a whole batch"
ROUNDED = "; it computes in 16 bits, so the sum over slices is rounded differently from that of a whole batch"
WHOLE = "{model}: batches stay whole, because {reason}; --batch-flag and --batch-env pass a script its batch size"


class Announcer:
    """Sends each note once for each model."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._said: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._unreached: set[type] = set()

    def cut(self) -> None:
        """Store in the record that batches are trained in slices now."""
        self._context.set("slices", self._context.slices)
        self._context.flag(wire.FLAG_SMALLER_BATCH)

    def sliced(self, model: Any, text: str) -> None:
        """Report once that `model` trains its batches in slices; `text` names what that changes."""
        self._say(model, "micro", text, factor=self._context.slices)

    def whole(self, model: Any, reason: str) -> None:
        """Report once that the batches of `model` are not sliced, and why."""
        if reason == TOO_EARLY:
            return
        self._context.set("slices", 1)
        self._context.flag(wire.FLAG_SMALLER_BATCH, False)
        if reason == OUT_OF_REACH:
            return  # reported already: see `unreached`
        self._say(model, "whole", WHOLE.format(model=type(model).__name__, reason=reason), **self._whole())

    def _whole(self) -> dict[str, int]:
        """Return the fact that batches have one part; no fact if other fits can get fewer rows instead."""
        return {} if self._context.settings.fewer_rows else {"factor": 1}

    def _say(self, model: Any, kind: str, said: str, **facts: int) -> None:
        if self._said.get(model) != said:
            self._said[model] = said
            self._context.note(kind, said, model=type(model).__name__, **facts)

    def unreached(self, model: Any) -> None:
        """Report once for each class that its own train_step cannot be sliced."""
        if type(model) in self._unreached or self._context.announced:
            return
        self._unreached.add(type(model))
        self._context.beyond(UNREACHED.format(model=type(model).__name__))
        if "stallguard" not in sys.modules:  # otherwise the script can divide its batches itself
            self._context.note("whole", UNREACHED.format(model=type(model).__name__), **self._whole())
