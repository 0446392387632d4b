"""What a call of `fit` offers: its rows, if they can be known, and whether Keras takes a batch size for them.

Looks at arguments only, never at the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT = 32  # rows that Keras takes where nobody says otherwise, since its first version


def takes_size(x: Any) -> bool:
    """Whether Keras cuts `x` into batches itself: arrays or tensors, alone or nested; no dataset, no generator."""
    leaves = list(_leaves(x))
    return bool(leaves) and all(getattr(leaf, "shape", None) is not None for leaf in leaves)


def rows(x: Any, batch_size: Any) -> int:
    """Return the rows of a batch, 0 where only the data know."""
    if takes_size(x):
        return batch_size if isinstance(batch_size, int) else DEFAULT
    spec = getattr(x, "element_spec", None)
    found = next(iter(_leading(spec)), None) if spec is not None else getattr(x, "batch_size", None)
    return found if isinstance(found, int) and found > 0 else 0


def _leaves(x: Any) -> Iterator[Any]:
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)):
        for part in x:
            yield from _leaves(part)
    else:
        yield x


def _leading(spec: Any) -> Iterator[Any]:
    """Yield the first dimension of each tensor of a pipeline, None where it is not fixed."""
    for leaf in _leaves(spec):
        shape: Any = getattr(leaf, "shape", None)
        dimensions = shape.as_list() if getattr(shape, "rank", None) else []
        yield dimensions[0] if dimensions else None
