"""Disk space for what a file will hold: it can grow on a full disk, up to there."""

from __future__ import annotations

import fcntl
import struct

PREALLOCATE = 42  # F_PREALLOCATE; these numbers are of sys/fcntl.h, and its fstore_t is the structure
ALLOCATE_ALL, AFTER_THE_END = 4, 3  # F_ALLOCATEALL, F_PEOFPOSMODE
_STORE = struct.Struct("=Iiqqq")


def reserve(descriptor: int, _begin: int, size: int) -> bool:
    """Reserve `size` bytes after those that the file has, without a change of its size: fcntl(2), F_PREALLOCATE.

    False if there is no space, or the file system cannot.
    """
    try:
        fcntl.fcntl(descriptor, PREALLOCATE, _STORE.pack(ALLOCATE_ALL, AFTER_THE_END, 0, size, 0))
    except OSError:
        return False
    return True
