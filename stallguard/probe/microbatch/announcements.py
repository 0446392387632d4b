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
SEVERAL = "several devices or processes train"
AT_ONCE = "the optimizer updates weights before the gradients of a batch are complete"
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

# Of a loop of the script's own that stallguard.track runs.
LOOP_SLICED = "each batch is trained in %d parts and one update; its loss is the %s over rows, as the script says"
LOOP_DRAWS = "; random numbers (dropout) are drawn for each part, not for the whole batch"
LOOP_WHOLE = "batches stay whole, because %s; --batch-flag and --batch-env pass a script its batch size"
LOOP_INEXACT = "the update of batch %d was not that of the whole batch, because %s"
LEFT = "the script left its loop in a part of a batch: the update of that batch was not made"
NO_WORD = (
    'only the script knows what its loss is over the rows of a batch: stallguard.track(..., loss="mean"), or "sum", '
    "has each batch trained in parts"
)
NO_LIBRARY = "no optimizer of torch or MLX was handed to stallguard.track"
OTHER_PROCESSES = "other processes take part in the training"
NO_ROWS = "a batch holds an object without rows, of type %s"
OTHER_ROWS = "the tensors of a batch differ in their number of rows"
ONE_ROW = "a batch has one row"
NORMALISES = "BatchNorm computes its statistics over the whole batch"
OLD_TORCH = "this version of torch has no hook around the step of an optimizer"
CLOSURE = "its optimizer computes gradients itself, in a closure"
SEVERAL_UPDATES = "it computes gradients again after an update in the same batch"
NOT_GRADED = "its optimizer is called before gradients are computed"
NO_GRADIENT = "no gradient was computed in a batch by backward(), or by value_and_grad outside of mx.compile"
UNLIKE = "not all parts of a batch were trained alike"
VALUES_CHANGE = "values of the model change without an update"
GRADIENTS_CHANGE = "the script changes gradients before the update"
ADDS_UP = "it adds up gradients of several batches itself"
TWICE = "gradients that the script adds up, and has not handed over, hold a part of batch %d twice"
PLATEAU = "a schedule reads the loss of each batch"
COMPILED_UPDATE = "the update is inside mx.compile, which runs what it has traced"


def stay_whole(context: Context, reason: str) -> None:
    """Report that the batches of a loop stay whole, and why, and store it in the record."""
    context.set("slices", 1)
    context.flag(wire.FLAG_SMALLER_BATCH, False)
    context.note("whole", LOOP_WHOLE % reason, factor=1)


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
