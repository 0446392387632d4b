"""Converts arrays to byte buffers and back, reads variables and tensors of every framework, and makes digests.

A fingerprint of a batch is made of its shapes, types and a few of its values: equal batches have equal ones.
"""

from __future__ import annotations

import json
import re
import sys
import zlib
from _blake2 import blake2b
from typing import Any

from ..frameworks import jax, torch

_NAME = re.compile(r"[A-Za-z]\w*(?:\[\w+\])?\Z", re.ASCII)  # of a dtype; numpy parses more than names


def pack(arrays: list[Any]) -> tuple[list[list[Any]], list[Any]]:
    """Return ([dtype name, shape] for each array, their bytes, copied only if not contiguous)."""
    numpy = sys.modules["numpy"]
    kept = [numpy.ascontiguousarray(array) for array in arrays]
    meta = [[array.dtype.name, list(numpy.shape(array))] for array in arrays]
    return meta, [memoryview(array.reshape(-1).view(numpy.uint8)) for array in kept]


def unpack(meta: list[list[Any]], blobs: list[memoryview]) -> list[Any]:
    """Return the arrays that `pack` converted, as read-only views of the blobs.

    Raises LookupError if there is no numpy, which the attempt that wrote them had.
    """
    try:
        import numpy  # torch and MLX train without it, so no script has to have imported it yet
    except ImportError as error:
        raise LookupError("numpy is not here any more") from error
    arrays: list[Any] = []
    for (name, shape), blob in zip(meta, blobs):
        if not isinstance(name, str) or not _NAME.match(name):
            raise ValueError("%r names no type" % (name,))
        try:
            dtype = numpy.dtype(name)
        except TypeError:  # bfloat16 and similar types are in ml_dtypes, which Keras requires
            dtype = numpy.dtype(getattr(sys.modules["ml_dtypes"], name))
        arrays.append(numpy.frombuffer(blob, dtype=dtype).reshape(shape))
    return arrays


def value_of(variable: Any, keep: bool = False) -> Any:
    """Return a variable's or tensor's value as a numpy array that can share its memory.

    `keep`: the array must not change while training goes on.  Two need no copy for that: TensorFlow's values, because
    an update of a variable copies its buffer if there is another reference to it, and what was read from a GPU.
    """
    numpy = sys.modules["numpy"]
    value = getattr(variable, "value", variable)  # Keras 3: a property; TensorFlow: a method
    if callable(value):
        value = variable.read_value() if hasattr(variable, "read_value") else value()
    if hasattr(value, "read_value"):  # Keras 3 contains a variable of TensorFlow
        value = value.read_value()
    if hasattr(value, "detach"):
        array = torch.array_of(value.detach().cpu())
        return array.copy() if keep and value.device.type == "cpu" else array
    view = getattr(value, "_numpy", None)
    if view is not None:
        return numpy.asarray(view())
    return numpy.array(value) if keep and not jax.is_on_gpu(value) else numpy.asarray(value)


def is_finite(array: Any, infinite: bool = False) -> bool:
    """Return whether no number of an array is NaN, or infinite unless that is allowed; mostly in one pass, by a sum."""
    numpy = sys.modules["numpy"]
    try:
        with numpy.errstate(all="ignore"):
            if numpy.isfinite(array.sum()):
                return True
            return not (numpy.isnan(array).any() if infinite else not numpy.isfinite(array).all())
    except TypeError:  # of a type that has no such values
        return True


def digest(array: Any, most: int = 0) -> list[Any]:
    """Return a short digest of all bytes of an array; with `most`, of about so many of its values."""
    numpy = sys.modules["numpy"]
    flat = array.reshape(-1)
    if most:
        flat = flat[:: max(1, array.size // most)]
    if array.dtype.hasobject:
        return ["object", list(array.shape), zlib.crc32(repr(flat.tolist()).encode("utf-8", "replace"))]
    data = numpy.ascontiguousarray(flat).view(numpy.uint8) if flat.size else flat.view(numpy.uint8)
    return [array.dtype.name, list(array.shape), zlib.crc32(memoryview(data))]


def digest_of_code(code: Any, digests: Any) -> int:
    """Return a checksum of JSON and the digests of its arrays."""
    return zlib.crc32(json.dumps([code, digests]).encode())


VALUES = 64  # of each array of a batch, spread over it
END = "end"  # instead of a fingerprint: the data have ended
RESIZED = "another size"  # of the first batch of a fit that went on with batches of another size


def fingerprint_of(batch: Any) -> str:
    """Return the fingerprint of a batch (nested tuples, lists and dicts of arrays or tensors): 12 hex digits a leaf."""
    found = []
    for name, leaf in _leaves(batch, ""):
        digest = blake2b(name.encode(), digest_size=6)
        for array in _arrays(leaf):
            digest.update(("%s%s" % (array.dtype.name, array.shape)).encode())
            flat = array.reshape(-1)
            part = flat[:: max(1, flat.size // VALUES)][: VALUES + 1]
            digest.update(repr(part.tolist()).encode("utf-8", "replace") if part.dtype.hasobject else part.tobytes())
        found.append(digest.hexdigest())
    return ".".join(found)


def fingerprint_of_first(batches: list[Any]) -> str:
    """Return the fingerprint of the first of `batches`, END if there is none."""
    return fingerprint_of(batches[0]) if batches else END


def fingerprints_differ(one: str, other: str, drawn: bool) -> bool:
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
        return [value_of(leaf.flat_values), *map(value_of, leaf.nested_row_splits)]
    if hasattr(leaf, "dense_shape") and hasattr(leaf, "indices"):
        return [value_of(leaf.indices), value_of(leaf.values)]
    if hasattr(leaf, "todense") or hasattr(leaf, "toarray"):  # of scipy, of JAX
        return [numpy.asarray(leaf.todense() if hasattr(leaf, "todense") else leaf.toarray())]
    return [value_of(leaf)]
