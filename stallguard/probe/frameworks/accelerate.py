"""Hugging Face accelerate: loops of the script's own with its `backward`.

A batch is a step of the optimizer, which PyTorch's hook counts (torch.py); the micro-batches whose gradients are summed
before it are counted here.  Such a loop is resumed by what the script hands over, never by guess.
"""

from __future__ import annotations

import os
import re
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
CHECKPOINTS, CHECKPOINT = "checkpoints", "checkpoint_%d"  # accelerate's names, if it names them itself
LOSS_EVERY = 0.05  # seconds between two reads of a loss on the CPU; one takes a microsecond
_LOSS = wire.SLOT["loss_bits"]


def targets(context: Context) -> Targets:
    """Return the modules that define Accelerator and its loaders."""
    hooks = AcceleratorHooks(context)
    return {"accelerate.accelerator": hooks.patch, "accelerate.data_loader": hooks.patch_loaders}


class AcceleratorSaves(SaveHooks):
    """The wrappers of what saves and loads the states of all prepared objects."""

    def path_of(self, accelerator: Any, *args: Any, **kwargs: Any) -> str:
        """Return the folder of a state, also if accelerate names it."""
        given, configuration = super().path_of(*args, **kwargs), accelerator.project_configuration
        if given or accelerator.project_dir is None:
            return given and os.path.expanduser(given)
        folder = os.path.join(accelerator.project_dir, CHECKPOINTS)
        named = configuration.automatic_checkpoint_naming
        return os.path.join(folder, CHECKPOINT % accelerator.save_iteration) if named else folder


class AcceleratorHooks:
    """The wrapper of Accelerator.backward."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._loss_due = 0.0

    def patch(self, module: Any) -> None:
        """Wrap what computes gradients, outside of Trainer's loop, which counts its own, and what loads a state."""
        self.context.wrap(module.Accelerator, "backward", self.backward)
        self.context.patches.may_rest(module.Accelerator, "backward")
        if self.context.script_checkpoints is not None:
            self.context.wrap(module.Accelerator, "load_state", self.load_state)

    def patch_loaders(self, module: Any) -> None:
        """Wrap what yields the batches, to compare the one after a checkpoint."""
        known = self.context.script_checkpoints
        for kind in (module.DataLoaderShard, module.DataLoaderDispatcher) if known is not None else ():
            self.context.wrap(kind, "__iter__", known.batches)

    def load_state(self, original: Function) -> Function:
        """Return the wrapper for Accelerator.load_state: of a folder that is not whole another one is read."""

        def load_state(accelerator: Any, input_dir: Any = None, *args: Any, **named: Any) -> Any:
            try:
                path = os.path.abspath(newest_of(accelerator) if input_dir is None else os.path.expanduser(input_dir))
                found = self.context.script_checkpoints.whole(path, input_dir is not None)
                input_dir = found if found != path else input_dir
            except OSError:  # of a folder that is not there, accelerate raises it too
                pass
            except Exception as error:
                self.context.surprise("looking at a checkpoint of accelerate", error)
            return original(accelerator, input_dir, *args, **named)

        return load_state

    def backward(self, original: Function) -> Function:
        """Return the wrapper for Accelerator.backward: a micro-batch."""
        beats, clock = self.beats, time.monotonic

        @patches.removes_its_own
        def backward(accelerator: Any, *args: Any, **named: Any) -> Any:
            try:
                result = original(accelerator, *args, **named)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                if accelerator.gradient_accumulation_steps > 1:
                    self.context.add("micro")
                    beats.moved()
                # What torch's hook saw is divided by the number of micro-batches: it has taken that number for unknown.
                if clock() >= self._loss_due or not beats.slots[_LOSS]:
                    self.take_loss(args[0] if args else named["loss"])
            except Exception as error:
                self.context.surprise("accelerate's backward", error)
            return result

        return backward

    def take_loss(self, loss: Any) -> None:
        """Take the loss of a micro-batch, if reading it waits for nothing: here it is not divided yet."""
        self._loss_due = time.monotonic() + LOSS_EVERY
        if getattr(loss, "is_cpu", False):
            self.context.losses.of_batch(float(loss.detach()))


def newest_of(accelerator: Any) -> str:
    """Return the folder that accelerate loads if the script names none: that of the largest number."""
    folder = os.path.join(accelerator.project_dir or "", CHECKPOINTS)
    names = os.listdir(folder) if accelerator.project_configuration.automatic_checkpoint_naming else []
    numbers = [(int(found[0]), name) for name in names for found in [re.findall("[0-9]+", name)] if found]
    return os.path.join(folder, max(numbers)[1] if numbers else "")


LIBRARY = Library(
    "accelerate",
    hooks=(targets, lambda context: AcceleratorSaves(context, SAVES).targets()),
    distributions=("accelerate",),
)
