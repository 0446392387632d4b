"""How a batch is divided into slices, and the share of the batch of each: arithmetic and one thread-local.

A loss that is a mean over the batch is the mean of the slices' losses, weighted by slice size / batch size.  A loss
that is a sum, or a mean over something else (unmasked positions, the sum of the weights), is corrected while a slice is
computed: see `Slice`.  Independent of any framework.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator

_here = threading.local()


class Slice:
    """One slice while its loss is computed: `size` samples of a batch of `batch` (numbers or tensors).

    `divisors` collects what reductions divided by, if that is not the number of samples.
    """

    def __init__(self, size: Any, batch: Any) -> None:
        self.size = size
        self.batch = batch
        self.losses = 0
        self.logged: Any = 1.0  # what the logged loss must be multiplied by
        self.divisors: list[Any] = []

    @property
    def divisor(self) -> Any:
        """Return what the only loss divides by, None if that is the number of samples.

        Several losses with different divisors have no common one: see `uneven`.
        """
        return self.divisors[0] if len(self.divisors) == 1 == self.losses else None

    @property
    def uneven(self) -> bool:
        """Whether the slices' weights are only approximate: there are several losses, at least one with a mask."""
        return bool(self.divisors) and self.losses > 1


def plan(batch: Any, factor: int, maximum: Callable[[Any, Any], Any] = max) -> tuple[Any, Any, Any]:
    """Return (first, size, others): a first slice of `first` samples, then `others` slices of `size`.

    `batch` is a number, or a tensor with the `maximum` of its framework.  The first slice takes the remainder, so that
    all others have the same size, as XLA requires.  If the factor exceeds the batch, every slice is one sample.
    """
    size = maximum(1, (batch + factor - 1) // factor)
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
