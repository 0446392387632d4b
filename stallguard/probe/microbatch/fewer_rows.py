"""Trains on a smaller batch, if the user chose that: `fit` gets fewer rows instead of slices.

This works for a `fit` on arrays or tensors, which takes a batch size.  A pipeline, a dataset object and a generator
make their batches themselves: those are trained in slices, and the hello reports it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable
from weakref import WeakKeyDictionary

from .. import wire
from . import fit_arguments
from .fit_sizes import TRAINERS
from .learning_rates import Rate
from .learning_rates import targets as rate_targets

if TYPE_CHECKING:
    from ..context import Context

SLICED = 0.0  # instead of a scale of the rate: the step was built for slices
MAKES_ITS_OWN = (
    "fit takes no batch size for {kind}: its batches keep their size, and smaller ones are made by slices"
)
FEWER = (
    "fit trains on batches of {rows} instead of {before}: {times:g} times as many updates an epoch, {rate}"
)
AS_IT_WAS = "the learning rate unchanged"
DIVIDED = "the learning rate divided by {by:.3g}"
UNREACHED = "the learning rate unchanged, because this optimizer is not known"
FASTER = "; a schedule that counts updates runs {times:g} times as fast"


def targets(context: Context) -> dict[str, Callable[[Any], None]]:
    """Return the patches of the trainers and the optimizers."""
    really = FewerRows(context, context.settings.really)
    patches = {name: really.patcher(kind) for name, kind in TRAINERS.items()}
    return {**patches, **rate_targets(context, really.rate)}


class FewerRows:
    """Makes `fit` train on fewer rows.  `scaling` of the learning rate: off, linear or sqrt."""

    def __init__(self, context: Context, scaling: str) -> None:
        self.context = context
        self.scaling = scaling
        self.rate = Rate()
        # The scale with which each model's step was built.
        self._modes: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self._reported: set[str] = set()

    def patcher(self, kind: str) -> Callable[[Any], None]:
        """Return the patch of the trainer class of this name."""
        return lambda module: (self.context.wrap(getattr(module, kind), "fit", self._fit), None)[1]

    def _fit(self, original: Any) -> Any:
        signature = inspect.signature(original)

        def fit(model: Any, *args: Any, **named: Any) -> Any:
            bound = None
            try:
                bound = signature.bind(model, *args, **named)
            except TypeError:
                pass
            if bound is None:
                # Behind the `except`: else the original's error would have this one as its context.
                return original(model, *args, **named)
            asked = dict(list(bound.arguments.items())[1:])
            x, before = asked.get("x"), 0
            if fit_arguments.takes_size(x):
                before = fit_arguments.rows(x, asked.get("batch_size"))
            else:
                self.context.beyond(MAKES_ITS_OWN.format(kind=type(x).__name__))
            rows = max(1, before // self.context.factor)
            if not before or rows == before:
                self._built_for(model, SLICED)
                return original(model, *args, **named)
            return self._smaller(original, model, asked, before, rows)

        return fit

    def _smaller(self, original: Any, model: Any, asked: dict[str, Any], before: int, rows: int) -> Any:
        """Train on batches of `rows` rows instead of `before`, and report once what that changes."""
        times = before / rows
        asked["batch_size"] = rows
        if asked.get("steps_per_epoch"):
            asked["steps_per_epoch"] = round(asked["steps_per_epoch"] * times)
        by = {"linear": times, "sqrt": times**0.5}.get(self.scaling, 1.0) if self.rate.reached else 1.0
        self._built_for(model, 1 / by)
        self.context.set("factor", self.context.asked)
        self.context.flag(wire.FLAG_SMALLER_BATCH)
        rate = AS_IT_WAS if by == 1.0 else DIVIDED.format(by=by)
        if self.scaling != "off" and not self.rate.reached:
            rate = UNREACHED
        said = FEWER.format(
            rows="1 row" if rows == 1 else "%d rows" % rows, before=before, times=times, rate=rate
        )
        kept = getattr(getattr(model, "optimizer", None), "_learning_rate", None)
        if callable(kept) and not hasattr(kept, "assign"):
            said += FASTER.format(times=times)
        if said not in self._reported:
            self._reported.add(said)
            self.context.note("micro", said)
        self.rate.scale, self.context.smaller = 1 / by, True
        try:
            return original(model, **asked)
        finally:
            self.rate.scale, self.context.smaller = 1.0, False

    def _built_for(self, model: Any, scale: float) -> None:
        """Have the step built again if it was built for slices or for another rate."""
        if self._modes.setdefault(model, scale) != scale:
            model.train_function = None
            self._modes[model] = scale
