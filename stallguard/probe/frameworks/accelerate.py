"""Hugging Face accelerate: loops of the script's own with its `backward`.

A batch is a step of the optimizer, which PyTorch's hook counts (torch.py); the micro-batches whose gradients are summed
before it are counted here.  Such a loop is resumed by what the script hands over, never by guess.
"""

from __future__ import annotations

import time

from .. import patches, wire
from ..hooks import SaveHooks
from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context, Targets
    from ..patches import Function

SAVES = {"accelerate.accelerator": ("Accelerator", "save_state save_model", "load_state")}
LOSS_EVERY = 0.05  # seconds between two reads of a loss on the CPU; one takes a microsecond
_LOSS = wire.SLOT["loss_bits"]


def targets(context: Context) -> Targets:
    """Return the module that defines Accelerator."""
    return {"accelerate.accelerator": AcceleratorHooks(context).patch}


class AcceleratorHooks:
    """The wrapper of Accelerator.backward."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._loss_due = 0.0

    def patch(self, module: Any) -> None:
        """Wrap the method that computes the gradients of a loss, outside of Trainer's loop, which counts its own."""
        self.context.wrap(module.Accelerator, "backward", self.backward)
        self.context.patches.may_rest(module.Accelerator, "backward")

    def backward(self, original: Function) -> Function:
        """Return the wrapper for Accelerator.backward."""

        @patches.removes_its_own
        def backward(accelerator: Any, *args: Any, **named: Any) -> Any:
            try:
                result = original(accelerator, *args, **named)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                self.graded(accelerator, args[0] if args else named["loss"])
            except Exception as error:
                self.context.surprise("accelerate's backward", error)
            return result

        return backward

    def graded(self, accelerator: Any, loss: Any) -> None:
        """Count a micro-batch, and take its loss if reading it waits for nothing: here it is not divided yet."""
        if accelerator.gradient_accumulation_steps > 1:
            self.context.add("micro")
            self.beats.moved()
        now = time.monotonic()
        # What torch's hook saw is divided by the number of micro-batches: it has taken that number for unknown.
        if (now >= self._loss_due or not self.beats.slots[_LOSS]) and getattr(loss, "is_cpu", False):
            self._loss_due = now + LOSS_EVERY
            self.context.losses.of_batch(float(loss.detach()))


LIBRARY = Library(
    "accelerate", hooks=(targets, lambda context: SaveHooks(context, SAVES).targets()), distributions=("accelerate",)
)
