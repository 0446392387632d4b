"""Trains on a smaller batch, if the user chose that: `fit` gets fewer rows instead of slices.

This works for a `fit` on arrays or tensors, which takes a batch size.  A pipeline, a dataset object and a generator
make their batches themselves: those are trained in slices, and the hello reports it.

The learning rate can be scaled for them: at its use in an update, never in its variable.  So checkpoints, callbacks and
schedules read the rate that the script set.  Keras 3 reads the rate through one method inside `apply`; Keras 2 through
a variable, or for a schedule through one that is computed at each step; Keras 2's legacy optimizers through
`_decayed_lr`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import wire
from ..hooks import arguments_of
from . import fit_sizes

if TYPE_CHECKING:
    from ..context import Context

SLICED = 0.0  # instead of a scale of the rate: the step was built for slices
MAKES_ITS_OWN = "fit takes no batch size for {kind}: its batches keep their size, and smaller ones are made by slices"
FEWER = "fit trains on batches of {rows} instead of {before}: {times:g} times as many updates an epoch, {rate}"
AS_IT_WAS = "the learning rate unchanged"
DIVIDED = "the learning rate divided by {by:.3g}"
UNREACHED = "the learning rate unchanged, because this optimizer is not known"
FASTER = "; a schedule that counts updates runs {times:g} times as fast"


def patch(fewer: FewerRows, kind: str, module: Any) -> None:
    """Wrap `fit` of the trainer class of this name."""
    fewer.context.wrap(getattr(module, kind), "fit", fewer.fit)


class Rate:
    """The current factor of the rate, and the wrappers of what reads the rate.  `inside` > 0: an update is computed."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.inside = 0
        self.reached = False  # an optimizer whose rate can be scaled is imported

    def _scaled(self, rate: Any) -> Any:
        return rate * self.scale if self.scale != 1.0 else rate

    def read(self, original: Any) -> Any:
        """Return a wrapper of the method of Keras 3 that reads the rate."""
        return lambda optimizer: self._scaled(original(optimizer)) if self.inside else original(optimizer)

    def updating(self, original: Any) -> Any:
        """Return a wrapper of the method of Keras 3 that computes an update."""

        def apply(*args: Any, **named: Any) -> Any:
            self.inside += 1
            try:
                return original(*args, **named)
            finally:
                self.inside -= 1

        return apply

    def computed(self, original: Any) -> Any:
        """Return a wrapper of the method of Keras 2 that computes the rate of a schedule."""

        def compute(optimizer: Any) -> Any:
            result = original(optimizer)
            if self.scale != 1.0 and not hasattr(optimizer._learning_rate, "assign"):  # a schedule
                optimizer._current_learning_rate.assign(self._scaled(optimizer._current_learning_rate))
            return result

        return compute

    def lent(self, original: Any) -> Any:
        """Return a wrapper of an update of Keras 2 that sets the variable to the scaled rate meanwhile."""

        def apply_gradients(optimizer: Any, *args: Any, **named: Any) -> Any:
            variable = optimizer._learning_rate
            if self.scale == 1.0 or not hasattr(variable, "assign"):
                return original(optimizer, *args, **named)
            before = variable.read_value()
            variable.assign(self._scaled(before))
            result = original(optimizer, *args, **named)
            variable.assign(before)
            return result

        return apply_gradients

    def decayed(self, original: Any) -> Any:
        """Return a wrapper of the method of Keras 2's legacy optimizers that computes the rate."""
        return lambda *args, **named: self._scaled(original(*args, **named))


class FewerRows:
    """Makes `fit` train on fewer rows.  `scaling` of the learning rate: off, linear or sqrt."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.scaling = context.settings.fewer_rows
        self.rate = Rate()
        # The scale with which each model's step was built.
        self._modes: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
        self._reported: set[str] = set()

    def fit(self, original: Any) -> Any:
        """Return a wrapper of `fit` that passes it fewer rows."""
        signature = inspect.signature(original)

        def fit(model: Any, *args: Any, **named: Any) -> Any:
            asked = arguments_of(signature, model, *args, **named)
            if asked is None:
                return original(model, *args, **named)
            x, before = asked.get("x"), 0
            if fit_sizes.takes_size(x):
                before = fit_sizes.rows(x, asked.get("batch_size"))
            else:
                self.context.beyond(MAKES_ITS_OWN.format(kind=type(x).__name__))
            rows = max(1, before // self.context.slices)
            if not before or rows == before:
                self._built_for(model, SLICED)
                return original(model, *args, **named)
            return self._smaller(original, model, asked, before, rows)

        return fit

    def _smaller(self, original: Any, model: Any, asked: dict[str, Any], before: int, rows: int) -> Any:
        times = before / rows
        asked["batch_size"] = rows
        if asked.get("steps_per_epoch"):
            asked["steps_per_epoch"] = round(asked["steps_per_epoch"] * times)
        by = {"linear": times, "sqrt": times**0.5}.get(self.scaling, 1.0) if self.rate.reached else 1.0
        self._built_for(model, 1 / by)
        self.context.set("slices", self.context.asked)
        self.context.flag(wire.FLAG_SMALLER_BATCH)
        rate = AS_IT_WAS if by == 1.0 else DIVIDED.format(by=by)
        if self.scaling != "off" and not self.rate.reached:
            rate = UNREACHED
        said = FEWER.format(rows="1 row" if rows == 1 else "%d rows" % rows, before=before, times=times, rate=rate)
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


begin = FewerRows


def patch_keras3(fewer: FewerRows, module: Any) -> None:
    """Wrap the base class of the optimizers of Keras 3."""
    wrap, rate, base = fewer.context.wrap, fewer.rate, module.BaseOptimizer
    is_read = wrap(base, "_get_current_learning_rate", rate.read)
    rate.reached |= is_read and wrap(base, "apply", rate.updating)


def patch_keras2(fewer: FewerRows, module: Any) -> None:
    """Wrap the base class of the optimizers of Keras 2."""
    wrap, rate, base = fewer.context.wrap, fewer.rate, vars(module).get("_BaseOptimizer")
    if base is not None:
        wrap(base, "_compute_current_learning_rate", rate.computed)
        rate.reached |= wrap(base, "apply_gradients", rate.lent)


def patch_legacy(fewer: FewerRows, module: Any) -> None:
    """Wrap the base class of the legacy optimizers of Keras 2."""
    rate = fewer.rate
    rate.reached |= fewer.context.wrap(module.OptimizerV2, "_decayed_lr", rate.decayed)
