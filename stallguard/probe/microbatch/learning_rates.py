"""Scales the learning rate of a batch with fewer rows: at its use in an update, never in its variable.

So checkpoints, callbacks and schedules read the rate that the script set.  Keras 3 reads the rate through one method
inside `apply`; Keras 2 through a variable, or for a schedule through one that is computed at each step; Keras 2's
legacy optimizers through `_decayed_lr`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..context import Context


class Rate:
    """The current factor of the rate.  `inside` > 0: an update is being computed."""

    def __init__(self) -> None:
        self.scale = 1.0
        self.inside = 0
        self.reached = False  # an optimizer whose rate can be scaled is imported

    def scaled(self, rate: Any) -> Any:
        """Return the rate that an update uses."""
        return rate * self.scale if self.scale != 1.0 else rate


def targets(context: Context, rate: Rate) -> dict[str, Callable[[Any], None]]:
    """Return the patches of the optimizers' base classes."""

    def keras3(module: Any) -> None:
        base = module.BaseOptimizer
        read = context.wrap(base, "_get_current_learning_rate", lambda original: _read(rate, original))
        rate.reached |= read and context.wrap(base, "apply", lambda original: _inside(rate, original))

    def keras2(module: Any) -> None:
        base = vars(module).get("_BaseOptimizer")
        if base is not None:
            context.wrap(base, "_compute_current_learning_rate", lambda original: _computed(rate, original))
            rate.reached |= context.wrap(base, "apply_gradients", lambda original: _lent(rate, original))

    def legacy(module: Any) -> None:
        def decayed(original: Any) -> Any:
            return lambda self, *args, **named: rate.scaled(original(self, *args, **named))

        rate.reached |= context.wrap(module.OptimizerV2, "_decayed_lr", decayed)

    return {
        "keras.src.optimizers.base_optimizer": keras3,
        **dict.fromkeys(("keras.src.optimizers.optimizer", "tf_keras.src.optimizers.optimizer"), keras2),
        "keras.src.optimizers.legacy.optimizer_v2": legacy,
        "tf_keras.src.optimizers.legacy.optimizer_v2": legacy,
    }


def _read(rate: Rate, original: Any) -> Any:
    def _get_current_learning_rate(self: Any) -> Any:
        return rate.scaled(original(self)) if rate.inside else original(self)

    return _get_current_learning_rate


def _inside(rate: Rate, original: Any) -> Any:
    def apply(self: Any, *args: Any, **named: Any) -> Any:
        rate.inside += 1
        try:
            return original(self, *args, **named)
        finally:
            rate.inside -= 1

    return apply


def _computed(rate: Rate, original: Any) -> Any:
    def _compute_current_learning_rate(self: Any) -> Any:
        result = original(self)
        if rate.scale != 1.0 and not hasattr(self._learning_rate, "assign"):  # a schedule
            self._current_learning_rate.assign(rate.scaled(self._current_learning_rate))
        return result

    return _compute_current_learning_rate


def _lent(rate: Rate, original: Any) -> Any:
    """Set the variable to the scaled rate during one update."""

    def apply_gradients(self: Any, *args: Any, **named: Any) -> Any:
        variable = self._learning_rate
        if rate.scale == 1.0 or not hasattr(variable, "assign"):
            return original(self, *args, **named)
        before = variable.read_value()
        variable.assign(rate.scaled(before))
        result = original(self, *args, **named)
        variable.assign(before)
        return result

    return apply_gradients
