"""Slices for Keras 3 on torch: one after the other, each with its backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

from . import announcements, batch_structure, compare, compare_torch, slice_plan, step_hooks
from .deferred_update import HeldUpdate, holding, loss_tracker

if TYPE_CHECKING:
    from ..context import Context
    from .announcements import Announcer
    from .compare import Slices


def targets(context: Context, announcer: Announcer, slices: Slices) -> dict[str, Callable[[Any], None]]:
    """Return the patch of the trainer that runs on torch."""

    def patch(module: Any) -> None:
        def train_step(original: Any) -> Any:
            return lambda self, data: Step(module, announcer, slices, original, self).run(
                data, context.factor
            )

        step_hooks.patch(
            context, announcer, slices, module.TorchTrainer, train_step, compare_torch.Framework(module)
        )

    return {"keras.src.backend.torch.trainer": patch}


class Step:
    """One `train_step` call, run slice by slice."""

    def __init__(self, module: Any, announcer: Announcer, slices: Slices, original: Any, model: Any) -> None:
        self.module = module
        self.announcer = announcer
        self.slices = slices
        self.original = original
        self.model = model

    def run(self, data: Any, factor: int) -> Any:
        """Train one batch in `factor` slices and one update; return the logs."""
        if factor <= 1:
            return self.original(self.model, data)
        comparison = self.slices.comparison(self.model)
        if comparison is not None:
            comparison.compare(compare_torch.Rows(self), data)
        reason = (
            self.slices.reason(self.model)
            or (announcements.NO_OPTIMIZER if getattr(self.model, "optimizer", None) is None else "")
            or (announcements.COMPILED if getattr(self.model, "jit_compile", False) else "")
            or batch_structure.obstacle(
                [(name, compare_torch.rows(leaf)) for name, leaf in batch_structure.leaves(data)]
            )
        )
        if reason:
            self.announcer.whole(self.model, reason)
        batch = 0 if reason else len(batch_structure.leaves(data)[0][1])
        if batch <= 1:
            return self.original(self.model, data)
        before = compare_torch.values(self.model, weights=False)
        try:
            with holding(self.model, "apply_gradients", "apply") as held:
                logs, sums = self.summed(held, data, slice_plan.plan(batch, factor), batch)
        except Exception as error:
            if compare.is_lack_of_memory(error):
                raise
            compare_torch.put_back(self.module.torch, before)
            self.slices.stay_whole(self.model, "its step fails in slices (%s)" % compare.described(error))
            return self.original(self.model, data)
        self.announcer.cut()
        if held.variables:
            with self.module.torch.no_grad():
                self.model.optimizer.apply(sums.mean(), held.variables)
        held.log(loss_tracker(self.model), sums.loss / sums.share, batch)
        return batch_structure.fresh_logs(self.model, logs)

    def summed(self, held: HeldUpdate, data: Any, cuts: Any, batch: int) -> tuple[Any, RunningSums]:
        """Return (logs, sums) of all slices: first, size and number of the others are `cuts`."""
        first, size, others = cuts
        sums, begin, logs = RunningSums(), 0, None
        for extent in [first] + [size] * others:
            with slice_plan.slicing(extent, batch) as piece:
                held.weigh = lambda loss, piece=piece: loss * _share(piece)
                logs = self.original(self.model, self.cut(data, begin, extent))
            held.uneven |= piece.uneven
            sums.add(held, piece)
            begin += extent
        return logs, sums

    def cut(self, data: Any, begin: int, size: int) -> Any:
        """Return `size` rows of each leaf from `begin`."""
        return self.module.tree.map_structure(
            lambda leaf: None if leaf is None else leaf[begin : begin + size], data
        )


def _share(piece: slice_plan.Slice) -> Any:
    return (piece.size if piece.divisor is None else piece.divisor) / piece.batch


class RunningSums:
    """Sums over slices: of the batch's shares, of loss times share, of gradients times share."""

    def __init__(self) -> None:
        self.share: Any = 0.0
        self.loss: Any = 0.0
        self._gradients: list[Any] = []

    def add(self, held: HeldUpdate, piece: slice_plan.Slice) -> None:
        """Add the results of one slice."""
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
        """Return the batch's gradients, None for a variable without one."""
        return [None if g is None else g / self.share for g in self._gradients]


def _plus(one: Any, other: Any) -> Any:
    return one if other is None else other if one is None else one.add_(other)
