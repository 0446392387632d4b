"""Disk space for what a file will hold: it can grow on a full disk, up to there."""

from __future__ import annotations

import ctypes

KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE, include/uapi/linux/falloc.h


def reserve(descriptor: int, begin: int, size: int) -> bool:
    """Reserve `size` bytes from `begin` on, without a change of the file's size: fallocate(2).

    False if there is no space, or the file system cannot.
    """
    try:
        call = ctypes.CDLL(None).fallocate64
    except (OSError, AttributeError):  # musl has fallocate alone, with 64 bits
        return False
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return bool(call(descriptor, KEEP_SIZE, begin, size) == 0)
