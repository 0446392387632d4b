"""MLX in a loop whose batches are trained in parts (loop_parts.py).

`Optimizer.apply_gradients`, which `update` calls, adds the gradients of a part to those before, and returns the
parameters as they are; with the last part it applies the sum.  The sum is evaluated in each part: then the memory of
the part's graph is free.

The gradients must be the arrays that `value_and_grad` returned, or those that `clip_grad_norm` made of them: that
is clipped once, as the gradient of the whole batch.  An update below `mx.compile` cannot be passed by: what MLX traces
is what it runs from then on.  So it is made, and undone: the arrays that there were before are still the same.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

from ..checkpoint import tracked_mlx
from ..hooks import own_classes
from ..patches import standing_for
from . import announcements
from .loop_parts import Part, current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .compare import Slices

    Function = Callable[..., Any]


class MlxWatch:
    """What the modules and optimizers of a loop show."""

    def __init__(self, modules: list[Any], optimizers: list[Any]) -> None:
        self._modules, self._optimizers = modules, optimizers
        self._before: list[tuple[Any, Any]] = []  # how an object is kept, and its state before a trial
        self._held: list[Any] = []  # arrays that no gradient is computed of, at the beginning of a batch
        self._values: list[Any] = []  # all arrays, at the beginning of a trial

    def obstacle(self) -> str:
        """Return why their batches cannot be divided, "" if nothing is known against it."""
        kind: Any = sys.modules["mlx.nn"].BatchNorm
        parts = (part for module in self._modules for part in module.modules())
        return announcements.NORMALISES if any(isinstance(one, kind) and one.training for one in parts) else ""

    def _fixed(self) -> list[Any]:
        """Return the arrays that only an update or the module itself changes, not value_and_grad."""
        utils = sys.modules["mlx.utils"]
        found = [one for optimizer in self._optimizers for _, one in utils.tree_flatten(optimizer.state)]
        for module in self._modules:
            trained = {name for name, _ in utils.tree_flatten(module.trainable_parameters())}
            found += [one for name, one in utils.tree_flatten(module.parameters()) if name not in trained]
        return found

    def _all(self) -> list[Any]:
        flatten = sys.modules["mlx.utils"].tree_flatten
        return [one for module in self._modules for _, one in flatten(module.parameters())]

    def begins(self, *, trial: bool) -> None:
        """Note the state at the beginning of a batch; with `trial`, so that it can be put back."""
        self._held, self._values, self._before = self._fixed(), [], []  # the trial was all right, if one was before
        if trial:
            found = [tracked_mlx.kept(one) for one in (*self._modules, *self._optimizers)]
            self._before = [(one, one.read()) for one in found]
            self._values = self._all()

    def changed(self, part: Part) -> str:
        """Return what the body changed in a part that it must not change, "" if nothing."""
        if part.is_last:
            return ""
        if part.is_first and self._before and not part.updates:
            return announcements.ADDS_UP
        now = self._fixed()
        is_held = len(now) == len(self._held) and all(one is other for one, other in zip(now, self._held))
        if is_held and part.is_first and self._values:
            equal = sys.modules["mlx.core"].array_equal
            pairs = list(zip(self._all(), self._values))
            is_held = all(one is other or bool(equal(one, other, equal_nan=True)) for one, other in pairs)
        return "" if is_held else announcements.VALUES_CHANGE

    def put_back(self) -> None:
        """Undo what a trial changed."""
        for optimizer in self._optimizers:
            for one in getattr(optimizer, "optimizers", None) or [optimizer]:
                one.state.clear()  # what the update made is in no earlier state
        for one, state in self._before:
            one.write(state)
        self._before, self._values = [], []


def watch(objects: tuple[Any, ...]) -> MlxWatch | None:
    """Return what watches the objects of MLX among those of a loop, None without an optimizer."""
    nn, optimizers = sys.modules.get("mlx.nn"), sys.modules.get("mlx.optimizers")
    if nn is None or optimizers is None:
        return None
    found = [one for one in objects if isinstance(one, optimizers.Optimizer)]
    return MlxWatch([one for one in objects if isinstance(one, nn.Module)], found) if found else None


def _arrays(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        for one in tree:
            yield from _arrays(one)
    elif tree is not None:
        yield tree


def patch_core(slices: Slices, module: Any) -> None:
    """Wrap what computes gradients."""
    for name in ("value_and_grad", "grad"):
        slices.context.wrap(module, name, _grading)


def _grading(original: Function) -> Function:
    def grading(*args: Any, **named: Any) -> Any:
        return standing_for(original(*args, **named), _graded)

    return grading


def _graded(run: Function) -> Function:
    def graded(*args: Any, **named: Any) -> Any:
        part = current()
        if part is not None:
            part.grades()
        result = run(*args, **named)
        if part is not None:
            part.values = list(_arrays(result))
            part.known.update((id(one), one) for one in part.values)
        return result

    return graded


def patch_optimizers(slices: Slices, module: Any) -> None:
    """Wrap what applies gradients, and what clips them."""
    for kind in own_classes(module, "apply_gradients"):
        slices.context.wrap(kind, "apply_gradients", _applying)
    if getattr(vars(module).get("clip_grad_norm"), "__module__", "") == module.__name__:  # it has them by import, too
        slices.context.wrap(module, "clip_grad_norm", _clipping)


def _summed(part: Part, gradients: Any, place: int) -> Any:
    """Return the sum of the gradients of a batch's parts up to this one, for the update at this place in the body."""
    weighted = sys.modules["mlx.utils"].tree_map(lambda one: one * part.weight, gradients)
    sums = part.loop.sums
    if place >= len(sums):
        return weighted
    return sys.modules["mlx.utils"].tree_map(lambda one, other: one + other, sums[place], weighted)


def _applying(original: Function) -> Function:
    def apply_gradients(optimizer: Any, gradients: Any, parameters: Any, *args: Any, **named: Any) -> Any:
        part = current()
        if part is None or part.inside:
            return original(optimizer, gradients, parameters, *args, **named)
        place = part.updates
        is_effective = part.updates_now()
        if part.graded and not all(id(one) in part.known for one in _arrays(gradients)):
            part.trouble = part.trouble or announcements.GRADIENTS_CHANGE
            part.values = []
        total = gradients if part.is_clipped else _summed(part, gradients, place)
        try:
            sys.modules["mlx.core"].eval(total, *part.values)
        except ValueError:  # a trace of mx.compile
            part.trouble, is_effective, total = announcements.COMPILED_UPDATE, True, gradients
        part.known, part.values, part.is_clipped = {}, [], False
        if not is_effective:
            part.loop.sums[place:] = [total]
            return sys.modules["mlx.utils"].tree_map(lambda _, one: one, gradients, parameters)
        part.inside = True  # one optimizer can consist of several
        try:
            return original(optimizer, total, parameters, *args, **named)
        finally:
            part.inside = False

    return apply_gradients


def _clipping(original: Function) -> Function:
    def clip_grad_norm(grads: Any, max_norm: Any) -> Any:
        part = current()
        if part is None or not part.graded:
            return original(grads, max_norm)
        if not part.is_last:
            return grads, original(grads, max_norm)[1]
        if not all(id(one) in part.known for one in _arrays(grads)):
            part.trouble = part.trouble or announcements.GRADIENTS_CHANGE
        clipped, norm = original(_summed(part, grads, part.updates), max_norm)
        part.known.update((id(one), one) for one in _arrays(clipped))
        part.is_clipped = True
        return clipped, norm

    return clip_grad_norm
