"""Micro-batches for Keras 3 on torch: the slices one after the other, each with its backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import reach, shares
from .held import Held, holding, loss_tracker

if TYPE_CHECKING:
    from ..context import Context
    from .words import Announcer


def targets(context: Context, announcer: Announcer) -> dict[str, Callable[[Any], None]]:
    """Return the patch of the trainer that runs on torch."""

    def patch(module: Any) -> None:
        def train_step(original: Any) -> Any:
            return lambda self, data: _step(module, announcer, original, self, data, context.factor)

        reach.patch(context, announcer, module.TorchTrainer, train_step)

    return {"keras.src.backend.torch.trainer": patch}


def _step(module: Any, announcer: Announcer, original: Any, model: Any, data: Any, factor: int) -> Any:
    leaves = [leaf for leaf in module.tree.flatten(data) if leaf is not None]
    reason = _obstacle(model, leaves)
    if reason and factor > 1:
        announcer.whole(model, reason)
    if reason or factor <= 1 or len(leaves[0]) <= 1:
        return original(model, data)
    return _sliced(module, announcer, original, model, data, len(leaves[0]), factor)


def _obstacle(model: Any, leaves: list[Any]) -> str:
    if getattr(model, "optimizer", None) is None:
        return reach.NO_OPTIMIZER
    if getattr(model, "jit_compile", False):
        return reach.COMPILED
    if not leaves or any(not getattr(leaf, "shape", ()) for leaf in leaves):
        return reach.NO_BATCH
    return ""


def _sliced(
    module: Any, announcer: Announcer, original: Any, model: Any, data: Any, batch: int, factor: int
) -> Any:
    first, size, others = shares.plan(batch, factor)
    sums = _Sums()
    begin = 0
    with holding(model, "apply_gradients", "apply") as held:
        for extent in [first] + [size] * others:
            piece = _cut(module, data, begin, extent)
            with shares.slicing(extent, batch) as slice_:
                held.weigh = lambda loss, slice_=slice_: loss * _share(slice_)
                logs = original(model, piece)
            announcer.cut(model, slice_.uneven)
            sums.add(held, slice_)
            begin += extent
    if held.variables:
        with module.torch.no_grad():
            model.optimizer.apply(sums.mean(), held.variables)
    held.log(loss_tracker(model), sums.loss / sums.share, batch)
    return reach.fresh_logs(model, logs)


def _cut(module: Any, data: Any, begin: int, size: int) -> Any:
    return module.tree.map_structure(lambda leaf: None if leaf is None else leaf[begin : begin + size], data)


def _share(piece: shares.Slice) -> Any:
    return (piece.size if piece.divisor is None else piece.divisor) / piece.batch


class _Sums:
    """Sums over slices: of the batch's shares, of loss times share, of gradients times share."""

    def __init__(self) -> None:
        self.share: Any = 0.0
        self.loss: Any = 0.0
        self._gradients: list[Any] = []

    def add(self, held: Held, piece: shares.Slice) -> None:
        """Add what one slice left."""
        share = _share(piece)
        self.share = self.share + share
        if held.loss is not None:
            self.loss = self.loss + held.loss.detach().mean() * share * piece.logged
        parts = held.gradients or []
        if self._gradients:
            self._gradients = list(map(_plus, self._gradients, parts))
        else:
            self._gradients = [None if g is None else g.clone() for g in parts]

    def mean(self) -> list[Any]:
        """Return the batch's gradients (None where a variable has none)."""
        return [None if g is None else g / self.share for g in self._gradients]


def _plus(one: Any, other: Any) -> Any:
    return one if other is None else other if one is None else one.add_(other)
