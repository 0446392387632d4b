"""PyTorch in a loop whose batches are trained in parts (loop_parts.py).

`backward()` gets the part's weight as the gradient of the loss, so that gradients add up in `.grad` as those of any
accumulation, and none overflows in 16 bits.  What belongs once to a batch is passed by in the other parts.  Gradients
that the script changes itself between two parts, and values of a module that change without an update, are found by the
versions that torch counts for each tensor.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any, Callable

from ..hooks import own_classes
from ..patches import standing_for
from . import announcements
from .loop_parts import Part, current

if TYPE_CHECKING:
    from .compare import Slices

    Function = Callable[..., Any]


class TorchWatch:
    """What the modules and optimizers of a loop show."""

    def __init__(self, modules: list[Any], optimizers: list[Any]) -> None:
        self._modules, self._optimizers = modules, optimizers
        self._tensors: list[Any] = []
        self._versions: list[int] = []
        self._slopes: list[Any] = []  # of each parameter: its gradient, and how often that was changed
        self._before: list[tuple[Any, Any]] = []  # buffers, and their values before a trial
        self._slopes_before: list[tuple[Any, Any]] = []
        self._torch = sys.modules["torch"]

    def obstacle(self) -> str:
        """Return why their batches cannot be divided, "" if nothing is known against it."""
        if not hasattr(self._torch.optim.Optimizer.profile_hook_step, "__wrapped__"):
            return announcements.OLD_TORCH
        kind = self._torch.nn.modules.batchnorm._BatchNorm
        parts = (part for module in self._modules for part in module.modules())
        return announcements.NORMALISES if any(isinstance(one, kind) and one.training for one in parts) else ""

    def _parameters(self) -> list[Any]:
        groups = [group["params"] for optimizer in self._optimizers for group in optimizer.param_groups]
        return [one for group in groups for one in group]

    def begins(self, *, trial: bool) -> None:
        """Note the state at the beginning of a batch; with `trial`, so that it can be put back."""
        buffers = [one for module in self._modules for one in module.buffers()]
        trained = self._parameters()
        self._tensors = [*trained, *(one for module in self._modules for one in module.parameters()), *buffers]
        self._versions = [one._version for one in self._tensors]
        self._slopes = []
        if trial:
            self._before = [(one, one.clone()) for one in buffers]
            self._slopes_before = [(one, None if one.grad is None else one.grad.clone()) for one in trained]

    def graded(self) -> None:
        """Note the gradients after they were computed."""
        self._slopes = [(one.grad, None if one.grad is None else one.grad._version) for one in self._parameters()]

    def are_kept(self) -> bool:
        """Return whether the gradients are those that were computed."""
        now = [one.grad for one in self._parameters()] if self._slopes else []
        pairs = zip(now, self._slopes)
        return all(one is known and (one is None or one._version == version) for one, (known, version) in pairs)

    def changed(self, part: Part) -> str:
        """Return what the body changed in a part that it must not change, "" if nothing."""
        if part.is_last:
            return ""
        if [one._version for one in self._tensors] != self._versions:
            return announcements.VALUES_CHANGE
        return "" if self.are_kept() else announcements.GRADIENTS_CHANGE

    def put_back(self) -> None:
        """Undo what a trial changed."""
        with self._torch.no_grad():
            for buffer, value in self._before:
                buffer.copy_(value)
        for parameter, slope in self._slopes_before:
            parameter.grad = slope
        self._before, self._slopes_before = [], []


def watch(objects: tuple[Any, ...]) -> TorchWatch | None:
    """Return what watches the objects of torch among those of a loop, None without an optimizer."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "optim"):
        return None
    optimizers = [one for one in objects if isinstance(one, torch.optim.Optimizer)]
    modules = [one for one in objects if isinstance(one, torch.nn.Module)]
    return TorchWatch(modules, optimizers) if optimizers else None


def _watch_of(part: Part) -> TorchWatch | None:
    return next((one for one in part.loop.watches if isinstance(one, TorchWatch)), None)


def patch_autograd(slices: Slices, module: Any) -> None:
    """Wrap what computes the gradients of losses; Tensor.backward calls it."""
    slices.context.wrap(module, "backward", _backward)


def _backward(original: Function) -> Function:
    def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **named: Any) -> Any:
        part = current()
        own = None if part is None or part.inside else _watch_of(part)
        if part is None or own is None:
            return original(tensors, grad_tensors, *args, **named)
        if not part.graded and not part.is_first and not own.are_kept():
            part.trouble = part.trouble or announcements.GRADIENTS_CHANGE
        part.grades()
        part.inside = True  # a checkpoint of activations computes gradients inside
        try:
            return original(tensors, _weighted(part, tensors, grad_tensors), *args, **named)
        finally:
            part.inside = False
            own.graded()

    return backward


def _weighted(part: Part, tensors: Any, slopes: Any) -> Any:
    """Return the gradients of `tensors` times the weight of the part; those of numbers are 1."""
    many = isinstance(tensors, (list, tuple))
    losses = list(tensors) if many else [tensors]
    if part.weight == 1.0 or not all(hasattr(one, "numel") for one in losses):
        return slopes
    given = (list(slopes) if isinstance(slopes, (list, tuple)) else [slopes]) if slopes is not None else [None]
    given = given + [None] * (len(losses) - len(given))
    with sys.modules["torch"].no_grad():
        found: list[Any] = []
        for loss, slope in zip(losses, given):
            if slope is None and (loss.numel() != 1 or not loss.requires_grad):
                found.append(None)  # torch raises its own error, or needs none
            else:
                found.append((loss.new_ones(()).expand_as(loss) if slope is None else slope) * part.weight)
    return found if many or isinstance(slopes, (list, tuple)) else found[0]


def patch_optimizer(slices: Slices, module: Any) -> None:
    """Wrap the step of each optimizer, and what clears gradients."""
    kind = module.Optimizer
    slices.context.wrap(kind, "zero_grad", _clearing)
    slices.context.wrap(kind, "profile_hook_step", lambda hook: lambda step: standing_for(hook(step), _stepping))


def patch_modules(slices: Slices, module: Any) -> None:
    """Wrap what clears the gradients of a module."""
    slices.context.wrap(module.Module, "zero_grad", _clearing)


def _clearing(original: Function) -> Function:
    def zero_grad(*args: Any, **named: Any) -> Any:
        part = current()
        if part is not None and part.graded and not part.updates:
            part.trouble = part.trouble or announcements.GRADIENTS_CHANGE
        return original(*args, **named) if part is None or part.is_effective else None

    return zero_grad


def _stepping(original: Function) -> Function:
    def step(optimizer: Any, *args: Any, **named: Any) -> Any:
        part = current()
        if part is None or part.inside:
            return original(optimizer, *args, **named)
        closure = args[0] if args else named.get("closure")
        if closure is not None:
            part.trouble = announcements.CLOSURE
        is_effective = part.updates_now()
        if closure is not None:
            with sys.modules["torch"].enable_grad():
                return closure()
        return original(optimizer, *args, **named) if is_effective else None

    return step


def _once(original: Function) -> Function:
    """Return what runs once a batch."""

    def once(*args: Any, **named: Any) -> Any:
        part = current()
        return original(*args, **named) if part is None or part.inside or part.is_effective else None

    return once


def patch_schedules(slices: Slices, module: Any) -> None:
    """Wrap the step of each schedule of the learning rate."""
    for kind in own_classes(module, "step"):
        slices.context.wrap(kind, "step", _by_loss if kind.__name__ == "ReduceLROnPlateau" else _once)


def _by_loss(original: Function) -> Function:
    def step(*args: Any, **named: Any) -> Any:
        part = current()
        if part is None:
            return original(*args, **named)
        part.trouble = part.trouble or announcements.PLATEAU
        return None

    return step


def patch_scaler(slices: Slices, module: Any) -> None:
    """Wrap what a scaler of losses does once a batch."""
    for name in ("unscale_", "update"):
        slices.context.wrap(module.GradScaler, name, _once)
    slices.context.wrap(module.GradScaler, "step", _scaled)


def _scaled(original: Function) -> Function:
    def step(*args: Any, **named: Any) -> Any:
        part = current()
        if part is None:
            return original(*args, **named)
        if not part.updates_now():
            return None
        part.inside = True  # it calls the optimizer, unless a gradient is no number
        try:
            return original(*args, **named)
        finally:
            part.inside = False

    return step


def patch_averages(slices: Slices, module: Any) -> None:
    """Wrap the update of averaged weights."""
    slices.context.wrap(module.AveragedModel, "update_parameters", _once)


def patch_clip(slices: Slices, module: Any) -> None:
    """Wrap what clips gradients: those of the whole batch, not those of a part."""
    slices.context.wrap(module, "clip_grad_norm_", _clipping)
    for name in ("clip_grad_value_", "_clip_grads_with_norm_", "clip_grads_with_norm_"):
        slices.context.wrap(module, name, _once)


def _clipping(original: Function) -> Function:
    def clip_grad_norm_(parameters: Any, max_norm: Any, *args: Any, **named: Any) -> Any:
        part = current()
        if part is None or part.is_effective:
            return original(parameters, max_norm, *args, **named)
        own = _watch_of(part)
        kept = own is None or own.are_kept()
        norm = original(parameters, math.inf, *args, **named)  # it multiplies by 1, and returns the norm
        if own is not None and kept:
            own.graded()
        return norm

    return clip_grad_norm_
