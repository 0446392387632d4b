"""What every framework's lever shares: the hook, whether a model's `train_step` is reached, its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..context import Context
    from .words import Announcer

NO_OPTIMIZER = "the model has no optimizer"
NO_BATCH = "some inputs have no batch dimension"
REPLICAS = "a distribution strategy already splits them"
COMPILED = "torch.compile traces the step"


def patch(context: Context, announcer: Announcer, trainer: Any, step: Callable[[Any], Any]) -> None:
    """Wrap `train_step` of the class `trainer`, and say of every model whether that reaches it."""

    def function(original: Any) -> Any:
        def make_train_function(self: Any, *args: Any, **named: Any) -> Any:
            if not reaches(self, trainer.__module__):
                announcer.unreached(self)
            return original(self, *args, **named)

        return make_train_function

    if context.wrap(trainer, "train_step", step):
        context.took("train_step")
        context.wrap(trainer, "make_train_function", function)


def reaches(model: Any, home: str) -> bool:
    """Return whether the `train_step` of `model` is, or calls, that of the module `home`."""
    step = model.train_step
    if getattr(step, "__module__", home) == home:
        return True
    return "train_step" in getattr(getattr(step, "__code__", None), "co_names", ())


def fresh_logs(model: Any, logs: Any) -> Any:
    """Return the logs of a slice with the metrics read again: those of the whole batch."""
    if not isinstance(logs, dict):
        return logs
    read = getattr(model, "get_metrics_result", None)
    fresh = read() if read else {metric.name: metric.result() for metric in model.metrics}
    return {name: fresh.get(name, value) for name, value in logs.items()}
