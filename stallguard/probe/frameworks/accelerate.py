"""Hugging Face accelerate: loops of the script's own with its `backward`.

A batch is a step of the optimizer, which PyTorch's hook counts (torch.py); the micro-batches whose gradients are summed
before it are counted here.  Such a loop is resumed by what the script hands over, never by guess.
"""

from __future__ import annotations

import time

from ..hooks import SaveHooks, around
from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets

SAVES = {"accelerate.accelerator": ("Accelerator", "save_state save_model", "load_state")}
LOSS_EVERY = 0.05  # seconds between two reads of a loss on the CPU; one takes a microsecond


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
        """Wrap the method that computes the gradients of a loss."""
        self.context.wrap(module.Accelerator, "backward", around(self.context, self.opens, self.closes, lambda _: None))

    def opens(self, accelerator: Any, loss: Any, **_: Any) -> Optional[tuple[Any, Any]]:
        """Begin the gradients of a micro-batch, outside of Trainer's loop, which counts its own."""
        return None if self.beats.fitting else (accelerator, loss)

    def closes(self, state: tuple[Any, Any], result: Any) -> None:
        """Count a micro-batch, and take its loss if reading it waits for nothing: here it is not divided yet."""
        accelerator, loss = state
        if accelerator.gradient_accumulation_steps > 1:
            self.context.add("micro")
            self.beats.moved()
        now = time.monotonic()
        # What torch's hook saw is divided by the number of micro-batches: it has taken that number for unknown.
        if (now >= self._loss_due or not self.context.get("loss_bits")) and getattr(loss, "is_cpu", False):
            self._loss_due = now + LOSS_EVERY
            self.context.losses.of_batch(float(loss.detach()))


LIBRARY = Library(
    "accelerate", hooks=(targets, lambda context: SaveHooks(context, SAVES).targets()), distributions=("accelerate",)
)
