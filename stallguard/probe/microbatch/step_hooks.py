"""Wraps the training step of Keras on any framework, and has the first batches of each fit compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from ..hooks import before
from ..lookahead import NAME
from . import announcements, batch_structure

if TYPE_CHECKING:
    from .announcements import Announcer
    from .compare import Framework, Slices

Step = Callable[[Any], Any]


def patch(slices: Slices, trainer: Any, step: Step, framework: Framework) -> None:
    """Wrap `train_step` of the class `trainer`, and have the first batches of each fit compared."""
    context, announcer = slices.context, slices.announcer
    begun: set[int] = set()  # models whose fit has begun, and whose train function was not made since

    def function(original: Any) -> Any:
        def make_train_function(self: Any, *args: Any, **named: Any) -> Any:
            result = original(self, *args, **named)
            anew = id(self) in begun
            begun.discard(id(self))
            try:
                if context.factor > 1:
                    _prepare(announcer, slices, framework, self, anew)
            except Exception as error:
                context.surprise("preparing slices", error)
            # Keras 2 stores and calls what this returns: it must be the NextCall.
            return result if result is None else vars(self).get(NAME) or result

        return make_train_function

    if context.wrap(trainer, "train_step", step):
        context.hook_installed("train_step")
        context.wrap(trainer, "make_train_function", function)
        context.wrap(trainer, "fit", before(context, lambda model, *_, **__: begun.add(id(model))))


def _prepare(announcer: Announcer, slices: Slices, framework: Framework, model: Any, anew: bool) -> None:
    """Have the first batches of `model` compared, or report why they stay whole."""
    if not batch_structure.reaches(model):
        announcer.unreached(model)
        slices.pass_over(model)
        return
    reason = ""
    if hasattr(model.train_step, "get_concrete_function"):  # a graph that was traced before would train
        reason = announcements.COMPILED_STEP
    elif batch_structure.is_own(model):
        iterators = [name for name, value in vars(model).items() if hasattr(value, "__next__")]
        reason = announcements.OWN_ITERATOR % iterators[0] if iterators else ""
    if reason:
        slices.stay_whole(model, reason)
    else:
        slices.prepare(model, framework, anew)
