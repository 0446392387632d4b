"""How a batch is divided into slices, and what each loss is divided by.

The share of the batch of each slice is arithmetic, and one thread-local.  A loss that is a mean over the batch is the
mean of the slices' losses, weighted by slice size / batch size.  A loss that is a sum, or a mean over something else
(unmasked positions, the sum of the weights), is corrected while a slice is computed: see `Slice`.  Independent of any
framework.

Keras divides by the number of elements ("sum_over_batch_size", "mean": weights are not part of the divisor), by the
number of unmasked elements if the predictions have a mask, by the sum of the weights ("mean_with_sample_weight"), or by
nothing ("sum", None).  Source: `keras/src/losses/loss.py`, functions `reduce_values` and `apply_mask`; Keras 2:
`keras/src/utils/losses_utils.py`, `compute_weighted_loss` and `apply_valid_mask`.  Outside a slice every function here
returns what the original returns.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .compare import Slices

_here = threading.local()


class Slice:
    """One slice while its loss is computed: `size` samples of `batch`; `divisors`: other ones, of reductions."""

    def __init__(self, size: Any, batch: Any) -> None:
        self.size = size
        self.batch = batch
        self.losses = 0
        self.logged: Any = 1.0  # what the logged loss must be multiplied by
        self.divisors: list[Any] = []

    @property
    def divisor(self) -> Any:
        """Return what the only loss divides by, None if that is the number of samples, or if there are several."""
        return self.divisors[0] if len(self.divisors) == 1 == self.losses else None

    @property
    def share(self) -> Any:
        """Return the slice's share of the batch's loss."""
        return (self.size if self.divisor is None else self.divisor) / self.batch

    @property
    def uneven(self) -> bool:
        """Whether the slices' weights are only approximate: there are several losses, at least one with a mask."""
        return bool(self.divisors) and self.losses > 1


def plan(batch: Any, count: int, maximum: Callable[[Any, Any], Any] = max) -> tuple[Any, Any, Any]:
    """Return (first, size, others): a first slice of `first` samples, then `others` slices of `size`.

    `batch` is a number, or a tensor with the `maximum` of its framework.  The first slice takes the remainder, so that
    all others have the same size, as XLA requires.  If `count` exceeds the batch, every slice is one sample.
    """
    size = maximum(1, (batch + count - 1) // count)
    others = maximum(1, (batch + size - 1) // size) - 1
    return batch - others * size, size, others


@contextmanager
def slicing(size: Any, batch: Any) -> Iterator[Slice]:
    """Make a `Slice` the current one of this thread during the body."""
    before = current()
    _here.slice = Slice(size, batch)
    try:
        yield _here.slice
    finally:
        _here.slice = before


def current() -> Slice | None:
    """Return the slice that this thread computes, None outside of one."""
    return getattr(_here, "slice", None)


_SUMS = (None, "none", "sum")


def patch_loss(slices: Slices, module: Any) -> None:
    """Wrap the function through which every loss of Keras 3 is reduced."""
    slices.context.wrap(module, "reduce_weighted_values", lambda original: _reducer(original, module))


def patch_mean(slices: Slices, module: Any) -> None:
    """Wrap Keras 3's Mean."""
    slices.context.wrap(module.Mean, "update_state", _mean)


def patch_utils(slices: Slices, module: Any) -> None:
    """Wrap the functions through which every loss of Keras 2 is reduced."""
    slices.context.wrap(module, "apply_valid_mask", lambda original: _masker(original, module.tf))
    slices.context.wrap(module, "compute_weighted_loss", lambda original: _weigher(original, module.tf))


def _mean(original: Any) -> Any:
    """Keep a mean over batches (a scalar without a weight: the loss of one output) a mean over batches."""

    def update_state(self: Any, values: Any, sample_weight: Any = None) -> Any:
        slice_ = current()
        if slice_ is not None and sample_weight is None and getattr(values, "shape", None) == ():
            sample_weight = slice_.size / slice_.batch
        return original(self, values, sample_weight)

    return update_state


def _reducer(original: Any, module: Any) -> Any:
    def reduce_weighted_values(
        values: Any, sample_weight: Any = None, mask: Any = None, reduction: Any = "sum_over_batch_size",
        **options: Any,
    ) -> Any:  # fmt: skip
        loss = original(values, sample_weight=sample_weight, mask=mask, reduction=reduction, **options)
        slice_ = current()
        if slice_ is None:
            return loss
        slice_.losses += 1
        ops = module.ops
        if reduction in _SUMS:
            return _sum(loss, slice_, reduction == "sum", ops.cast)
        by_weight = reduction == "mean_with_sample_weight"
        if mask is not None and not by_weight:
            slice_.divisors.append(ops.sum(ops.cast(mask, loss.dtype)))
        elif by_weight and (mask is not None or sample_weight is not None):
            merged = module.apply_mask(sample_weight, mask, dtype=loss.dtype, reduction=reduction)
            slice_.divisors.append(ops.sum(ops.cast(merged, loss.dtype)))
        return loss

    return reduce_weighted_values


def _sum(loss: Any, slice_: Any, reduced: bool, cast: Any) -> Any:
    """Return a slice's sum divided by size / batch, the weight that it is multiplied by later.

    The log shows the mean, not the sum, of losses that stay a vector (not `reduced`).
    """
    weight = cast(slice_.size, loss.dtype) / cast(slice_.batch, loss.dtype)
    if not reduced:
        slice_.logged = weight
    return loss / weight


def _masker(original: Any, tf: Any) -> Any:
    """Count the unmasked positions, which Keras 2 divides by; `reduction` is "auto", "sum_over_batch_size", ..."""

    def apply_valid_mask(losses: Any, sw: Any, mask: Any, reduction: Any) -> Any:
        slice_ = current()
        if slice_ is not None and mask is not None and reduction not in _SUMS:
            slice_.divisors.append(tf.reduce_sum(tf.cast(mask, "float32")))
        return original(losses, sw, mask, reduction)

    return apply_valid_mask


def _weigher(original: Any, tf: Any) -> Any:
    def compute_weighted_loss(
        losses: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size", name: Any = None
    ) -> Any:
        loss = original(losses, sample_weight=sample_weight, reduction=reduction, name=name)
        slice_ = current()
        if slice_ is None:
            return loss
        slice_.losses += 1
        return _sum(loss, slice_, reduction == "sum", tf.cast) if reduction in _SUMS else loss

    return compute_weighted_loss
