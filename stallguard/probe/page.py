"""The record's memory: a file of the run mapped into this process, or private memory if there is no such file.

A process can replace its program (os.execv) by one whose probe makes a page of the same name, while the supervisor has
the old one mapped.  Reading a mapped file that was truncated raises SIGBUS, which would end the supervisor.  So the
size of a page never changes: each probe writes a new file and renames it over the name, and a mapping of the old one
stays valid.

Must not raise: a process without a page trains too, but the supervisor cannot watch it.
"""

from __future__ import annotations

import mmap
import os
import sys

from . import wire


def private(size: int = wire.SIZE) -> memoryview:
    """Return slots in private memory: for a process that has not trained, and for a worker."""
    return memoryview(bytearray(size)).cast("q")


def shared(path: str, size: int = wire.SIZE) -> memoryview:
    """Create the file `path` of `size` bytes, and return its slots, mapped and shared; private ones if that fails.

    The file is written, not extended by truncation: a hole on a full disk would raise SIGBUS at the first store.
    """
    draft = path + "~"  # of this process only: the name contains its number
    try:
        descriptor = os.open(
            draft,
            os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0),
            0o600,
        )
    except OSError:
        return private(size)
    try:
        os.write(descriptor, bytes(size))
        # Before 3.13 a mapping keeps a descriptor of its own, which the program can close.
        how = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        # ValueError if the disk took only a part.
        slots = memoryview(mmap.mmap(descriptor, size, **how)).cast("q")
        os.rename(draft, path)
    except (OSError, ValueError):
        try:
            os.unlink(draft)
        except OSError:
            pass
        return private(size)
    else:
        return slots
    finally:
        os.close(descriptor)


def moved(old: memoryview, path: str) -> memoryview:
    """Return slots of the file `path` with the content of `old`, the magic last: a reader gets all or nothing."""
    slots = shared(path)
    slots[1:] = old[1:]
    slots[0] = old[0]
    return slots


def begin(slots: memoryview, token: int, pid: int, now: int) -> memoryview:
    """Fill a new record: all fields zero or unknown, the magic last: a reader gets all or nothing."""
    for field in ("epoch", "epochs", "batch", "batches", "iterations", "wakers"):
        slots[wire.SLOT[field]] = -1
    slots[wire.SLOT["token"]] = token
    slots[wire.SLOT["pid"]] = pid
    slots[wire.SLOT["began_ns"]] = now
    slots[wire.SLOT["phase_ns"]] = slots[wire.SLOT["progress_ns"]] = now
    slots[wire.SLOT["factor"]] = 1
    slots[wire.SLOT["loss_bits"]] = wire.float_bits(float("nan"))
    slots[wire.SLOT["magic"]] = wire.MAGIC
    return slots
