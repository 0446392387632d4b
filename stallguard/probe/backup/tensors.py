"""Arrays to flat byte buffers and back, with dtype and shape beside them."""

from __future__ import annotations

import sys
from typing import Any


def pack(arrays: list[Any]) -> tuple[list[list[Any]], list[Any]]:
    """Return ([dtype name, shape] for each array, their bytes without a copy where they are contiguous)."""
    numpy = sys.modules["numpy"]
    kept = [numpy.ascontiguousarray(array) for array in arrays]
    meta = [[array.dtype.name, list(numpy.shape(array))] for array in arrays]
    return meta, [memoryview(array.reshape(-1).view(numpy.uint8)) for array in kept]


def unpack(meta: list[list[Any]], blobs: list[memoryview]) -> list[Any]:
    """Return the arrays that `pack` took apart; read-only views of the blobs."""
    numpy = sys.modules["numpy"]
    return [
        numpy.frombuffer(blob, dtype=numpy.dtype(name)).reshape(shape)
        for (name, shape), blob in zip(meta, blobs)
    ]
