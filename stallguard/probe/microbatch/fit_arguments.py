"""What the arguments of `fit` show: the rows of a batch, if known, and whether Keras takes a batch size for them.

Reads the arguments only, never the data.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = 32  # rows of a batch without an argument, since the first version of Keras


def takes_size(x: Any) -> bool:
    """Return whether Keras divides `x` into batches itself: arrays or tensors, also nested; no dataset or generator."""
    leaves = list(_leaves(x))
    return bool(leaves) and all(getattr(leaf, "shape", None) is not None for leaf in leaves)


def rows(x: Any, batch_size: Any) -> int:
    """Return the rows of a batch, 0 if only the data show them."""
    if takes_size(x):
        return DEFAULT if batch_size is None else _whole(batch_size)
    spec = getattr(x, "element_spec", None)
    if spec is None:
        found = getattr(x, "batch_size", None)
    else:  # the first dimension of a pipeline's first tensor, None if it is not fixed
        shape: Any = getattr(next(_leaves(spec), None), "shape", None)
        dimensions = shape.as_list() if getattr(shape, "rank", None) else []
        found = dimensions[0] if dimensions else None
    return _whole(found)


def _whole(size: Any) -> int:
    """Return a size, also one of numpy; 0 if it is none."""
    try:
        return max(0, operator.index(size))
    except TypeError:
        return 0


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        for part in x:
            yield from _leaves(part)
    else:
        yield x
