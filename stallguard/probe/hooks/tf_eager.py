"""Counts the gradient of a tape in an eager loop as a beat, unless a better hook counts."""

from __future__ import annotations

import sys

from ..beats import TAPE
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets


def targets(context: Context) -> Targets:
    """Return the module that defines GradientTape."""
    return {"tensorflow.python.eager.backprop": TapeHooks(context).patch}


class TapeHooks:
    """The wrapper of an eager gradient."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats

    def patch(self, module: Any) -> None:
        """Wrap GradientTape.gradient."""
        self.eager = sys.modules["tensorflow.python.eager.context"].executing_eagerly
        bracket = around(self.context, self.opens, self.closes, self.beats.call_failed)
        if self.context.wrap(module.GradientTape, "gradient", bracket):
            self.context.hook_installed("tape")

    def opens(self, *args: Any, **kwargs: Any) -> Optional[int]:
        """Begin a gradient that is computed now; not one that is traced into a graph."""
        return self.beats.call_begins() if self.beats.may_open() and self.eager() else None

    def closes(self, before: int, result: Any) -> None:
        """Count the gradient."""
        self.beats.call_ends(before, TAPE)
