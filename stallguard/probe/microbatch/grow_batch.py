"""Makes batches larger again, at the end of the epoch in which the supervisor commanded it.

The number of slices changes in the running training: its step is built again.  If `fit` gets fewer rows instead of
slices, only a new start of the script can change that, and a note reports that the epoch has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from .. import wire
from ..hooks.keras_callbacks import HOMES

if TYPE_CHECKING:
    from ..context import Context

ASKED = wire.COMMANDS.index("regrow")
EPOCH_END = "an epoch ended: the larger batch can begin now"
GROWN = "each batch is trained in {factor} slices and one update from now on"
WHOLE = "each batch is trained whole again from now on, as the script sets it"


def targets(context: Context) -> dict[str, Callable[[Any], None]]:
    """Return the patch of the class that calls all callbacks."""

    def after(original: Any) -> Any:
        def on_epoch_end(self: Any, *args: Any, **named: Any) -> Any:
            result = original(self, *args, **named)
            if context.get("command") == ASKED:
                context.set("command", 0)
                try:
                    _grow(context, getattr(self, "model", None))
                except Exception as error:
                    context.surprise("regrow", error)
            return result

        return on_epoch_end

    def patch(module: Any) -> None:
        kind = vars(module).get("CallbackList")
        if kind is not None and kind.__module__ == module.__name__:
            context.wrap(kind, "on_epoch_end", after)

    return dict.fromkeys(HOMES, patch)


def _grow(context: Context, model: Any) -> None:
    factor = context.factor // 2
    if factor < 1 or not hasattr(model, "make_train_function"):
        context.note("epoch-end", EPOCH_END)
        return
    environment: Any = context.environment
    environment["STALLGUARD_FACTOR"] = str(factor)
    model.make_train_function(force=True)
    context.set("factor", factor)
    context.flag(wire.FLAG_SMALLER_BATCH, factor > 1)
    context.note("regrown", GROWN.format(factor=factor) if factor > 1 else WHOLE, factor=factor)
