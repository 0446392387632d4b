"""Slices in Hugging Face's Trainer: its `training_step`, which computes the gradients of a batch, runs for each slice.

Its arguments stay as they are, and so do its batches, what its collator draws for them, and the number of its steps.
The loss that Trainer divides by the tokens of all micro-batches of a step (num_items_in_batch) adds up; any other is a
mean, and shares.py finds over what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..hooks import before
from . import announcements
from .deferred_update import shadowed
from .shares import Shares, StaysWhole

if TYPE_CHECKING:
    from ..patches import Function
    from .compare import Slices

ELSEWHERE = "DeepSpeed or FSDP computes their gradients"
NO_TENSORS = "a batch is no dictionary of tensors"
NEVER_CALLED = "its training_step does not call Trainer's"


def obstacle(trainer: Any, model: Any, inputs: Any) -> str:
    """Return why the batches of a Trainer cannot be divided, "" if they can."""
    args = trainer.args
    if args.world_size > 1 or args.n_gpu > 1:
        return announcements.SEVERAL
    if getattr(trainer, "is_deepspeed_enabled", False) or getattr(trainer, "is_fsdp_enabled", False):
        return ELSEWHERE
    if getattr(args, "torch_compile", False) or hasattr(model, "_orig_mod"):
        return announcements.COMPILED
    early = any(getattr(one, "_post_accumulate_grad_hooks", None) for one in model.parameters())
    if early or "lomo" in str(args.optim).lower():
        return announcements.AT_ONCE
    return "" if isinstance(inputs, Mapping) else NO_TENSORS


class TrainerSlices:
    """The wrappers of Trainer."""

    def __init__(self, slices: Slices) -> None:
        self.context = slices.context
        self.shares = Shares(slices)
        self._called = False  # Trainer's own training_step, in this step of the optimizer

    def training_step(self, original: Function) -> Function:
        """Return the wrapper for Trainer.training_step."""

        def training_step(trainer: Any, model: Any, inputs: Any, *args: Any, **named: Any) -> Any:
            def step(part: Any) -> Any:
                return original(trainer, model, part, *args, **named)

            self._called = True
            parts = self._divided(trainer, model, inputs, step) if self.context.slices > 1 else []
            if not parts:
                return step(inputs)
            self.shares.announcer.cut()
            total: Any = 0.0
            for part in parts:
                with _weighed(trainer, part.share):
                    total = total + step(part.data)
            return total

        return training_step

    def _divided(self, trainer: Any, model: Any, inputs: Any, step: Any) -> Any:
        try:
            why = obstacle(trainer, model, inputs)
            half = trainer.args.fp16 or trainer.args.bf16
            return self.shares.divide(trainer, model, inputs, step, obstacle=why, half=half)
        except StaysWhole:
            raise
        except Exception as error:
            self.context.surprise("dividing a batch of Trainer", error)
            return []

    def step_end(self, handler: Any, *_: Any) -> None:
        """Say of a Trainer that has a training_step of its own that its batches stay whole."""
        if self.context.slices > 1 and not self._called:
            self.shares.announcer.whole(handler.model, NEVER_CALLED)
        self._called = False


def _weighed(trainer: Any, share: float) -> Any:
    """Return a context manager in whose body the losses of a Trainer are multiplied by a share."""
    original = trainer.compute_loss

    def compute_loss(*args: Any, **named: Any) -> Any:
        found = original(*args, **named)
        return (found[0] * share, *found[1:]) if isinstance(found, tuple) else found * share

    return shadowed(trainer, {"compute_loss": compute_loss})


def begin(slices: Slices, module: Any) -> TrainerSlices:
    """Return the wrappers of Trainer; `module`: transformers.trainer.  That of its step is installed by the caller."""
    made = TrainerSlices(slices)
    slices.context.wrap(module.CallbackHandler, "on_step_end", before(slices.context, made.step_end))
    return made
