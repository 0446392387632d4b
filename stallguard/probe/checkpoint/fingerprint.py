"""Fingerprints of batches: of their shapes, types and a few of their values.  Equal batches have equal ones.

Standard library; the arrays are those of the user's framework.
"""

from __future__ import annotations

import sys
from _blake2 import blake2b
from typing import Any

from . import tensors

VALUES = 64  # of each array of a batch, spread over it
END = "end"  # instead of a fingerprint: the data have ended
RESIZED = "another size"  # of the first batch of a fit that went on with batches of another size


def of(batch: Any) -> str:
    """Return the fingerprint of a batch (nested tuples, lists and dicts of arrays or tensors): 12 hex digits a leaf."""
    found = []
    for name, leaf in _leaves(batch, ""):
        digest = blake2b(name.encode(), digest_size=6)
        for array in _arrays(leaf):
            digest.update(("%s%s" % (array.dtype.name, array.shape)).encode())
            flat = array.reshape(-1)
            part = flat[:: max(1, flat.size // VALUES)][: VALUES + 1]
            digest.update(
                repr(part.tolist()).encode("utf-8", "replace") if part.dtype.hasobject else part.tobytes()
            )
        found.append(digest.hexdigest())
    return ".".join(found)


def of_first(batches: list[Any]) -> str:
    """Return the fingerprint of the first of `batches`, END if there is none."""
    return of(batches[0]) if batches else END


def differ(one: str, other: str, drawn: bool) -> bool:
    """Return whether two fingerprints are those of different batches.

    `drawn`: the pipeline draws random values that cannot be repeated, such as an augmentation.  Then batches are in the
    same order if they have a leaf in common, such as the labels.
    """
    if not drawn or END in (one, other):
        return one != other
    return not any(a == b for a, b in zip(one.split("."), other.split(".")))


def _leaves(value: Any, name: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value, key=str) for leaf in _leaves(value[key], "%s.%s" % (name, key))]
    if isinstance(value, (list, tuple)):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, "%s.%d" % (name, index))]
    return [(name, value)]


def _arrays(leaf: Any) -> list[Any]:
    """Return a leaf as dense numpy arrays; ragged and sparse tensors have several."""
    numpy = sys.modules["numpy"]
    if leaf is None:
        return []
    if hasattr(leaf, "row_splits") and hasattr(leaf, "flat_values"):
        return [tensors.value_of(leaf.flat_values), *map(tensors.value_of, leaf.nested_row_splits)]
    if hasattr(leaf, "dense_shape") and hasattr(leaf, "indices"):
        return [tensors.value_of(leaf.indices), tensors.value_of(leaf.values)]
    if hasattr(leaf, "todense") or hasattr(leaf, "toarray"):  # of scipy, of JAX
        return [numpy.asarray(leaf.todense() if hasattr(leaf, "todense") else leaf.toarray())]
    return [tensors.value_of(leaf)]
