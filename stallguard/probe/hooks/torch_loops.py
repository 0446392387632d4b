"""Counts each optimizer step of PyTorch as a beat, and records the wait for a DataLoader as input."""

from __future__ import annotations

from ..beats import BETWEEN, INPUT, STEP, TORCH
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

    from ..context import Context, Targets


def targets(context: Context) -> Targets:
    """Return the modules that define the optimizer and the DataLoader."""
    hooks = TorchHooks(context)
    return {
        "torch.optim.optimizer": hooks.patch_optimizer,
        "torch.utils.data.dataloader": hooks.patch_loader,
    }


class TorchHooks:
    """The wrappers of a torch loop."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._loader = False  # a DataLoader was used: its wait is then distinct from what precedes it

    def patch_optimizer(self, module: Any) -> None:
        """Register torch's own hook that runs after every step of every optimizer (2.0 and later)."""
        module.register_optimizer_step_post_hook(self.stepped)
        self.context.hook_installed("torch_step")

    def stepped(self, *args: Any) -> None:
        """Count a step of an optimizer."""
        try:
            self.beats.beat(TORCH)
            if not self.beats.fitting and not self.beats.inside:
                self.beats.enter(BETWEEN if self._loader else STEP)
        except Exception as error:
            self.context.surprise("torch step", error)

    def patch_loader(self, module: Any) -> None:
        """Wrap the iterator of a DataLoader."""
        bracket = around(self.context, self.opens, self.closes, self.beats.leave)
        if self.context.wrap(module._BaseDataLoaderIter, "__next__", bracket):
            self.context.hook_installed("torch_loader")

    def opens(self, iterator: Any) -> Optional[int]:
        """Begin the wait for the next batch."""
        self._loader = True
        return self.beats.enter(INPUT) if self.beats.mine() else None

    def closes(self, before: int, result: Any) -> None:
        """End the wait: the step follows."""
        self.beats.input_ends(before if self.beats.fitting else STEP)
