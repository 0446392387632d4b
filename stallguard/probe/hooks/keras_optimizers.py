"""Counts the eager updates of Keras' optimizers as beats, and registers their counters with the poll thread."""

from __future__ import annotations

import sys

from ..beats import OPTIMIZER
from ..poll import Poller
from .wrap import around, before, keras_backend, own_classes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets

HOMES = (
    "keras.src.optimizers.base_optimizer",  # Keras 3
    "keras.src.optimizers.optimizer",  # Keras 2.13 to 2.15
    "keras.src.optimizers.legacy.optimizer_v2",
    "tf_keras.src.optimizers.optimizer",
    "tf_keras.src.optimizers.legacy.optimizer_v2",
    "keras.optimizers.optimizer_experimental.optimizer",  # Keras 2.9 to 2.12
    "keras.optimizers.optimizer_v2.optimizer_v2",
    "keras.optimizer_v2.optimizer_v2",
)


def targets(context: Context) -> Targets:
    """Return the modules that define an optimizer's base class."""
    hooks = OptimizerHooks(context)
    return dict.fromkeys(HOMES, hooks.patch)


class OptimizerHooks:
    """The wrappers of an optimizer's methods."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self.poller = Poller(context.beats, context.mail.own_thread)
        self._eager = _always

    def patch(self, module: Any) -> None:
        """Wrap the base classes of `module`."""
        context = self.context
        tensorflow = sys.modules.get("tensorflow.python.eager.context")
        self._eager = getattr(tensorflow, "executing_eagerly", _always)
        backend = keras_backend()
        for kind in own_classes(module, "apply_gradients"):
            # Torch on Metal does not support a second thread that uses the device.
            if backend != "torch" and context.wrap(kind, "__init__", before(context, self.made)):
                context.hook_installed("poll")
            # On JAX updates are only traced: a call of `apply` is no update.
            if backend != "jax":
                bracket = around(context, self.opens, self.closes, self.beats.call_failed)
                taken = [context.wrap(kind, name, bracket) for name in ("apply", "apply_gradients")]
                if any(taken):
                    context.hook_installed("optimizer")

    def made(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Register the counter of an optimizer that is being made."""
        self.poller.watch(optimizer)

    def opens(self, *args: Any, **kwargs: Any) -> Optional[int]:
        """Begin an update that runs now; not one that is traced into a graph."""
        return self.beats.call_begins() if self.beats.may_open() and self._eager() else None

    def closes(self, before: int, result: Any) -> None:
        """Count the update."""
        self.beats.call_ends(before, OPTIMIZER)


def _always() -> bool:
    return True
