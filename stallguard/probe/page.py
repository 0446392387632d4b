"""The record's memory: a file of the run mapped into this process, or private memory where that cannot be had.

May not raise: a process without a page still trains, it only goes unseen.
"""

from __future__ import annotations

import mmap
import os

from . import wire


def private() -> memoryview:
    """Return slots that nobody else sees: for a forked worker, and for a probe that stepped aside."""
    return memoryview(bytearray(wire.SIZE)).cast("q")


def shared(path: str) -> memoryview:
    """Return the slots of the file `path`, made here, mapped and shared; private ones where that fails.

    The file is written, not extended by truncation: a hole on a full disk would be a SIGBUS at the first store.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError:
        return private()
    try:
        if os.write(descriptor, bytes(wire.SIZE)) != wire.SIZE:
            return private()
        return memoryview(mmap.mmap(descriptor, wire.SIZE)).cast("q")
    except (OSError, ValueError):
        return private()
    finally:
        os.close(descriptor)


def begin(slots: memoryview, token: int, pid: int, now: int) -> memoryview:
    """Fill a fresh record: everything zero or unknown, the magic last, so that a reader sees all or nothing."""
    for field in ("epoch", "epochs", "batch", "batches", "iterations"):
        slots[wire.SLOT[field]] = -1
    slots[wire.SLOT["token"]] = token
    slots[wire.SLOT["pid"]] = pid
    slots[wire.SLOT["phase_ns"]] = slots[wire.SLOT["progress_ns"]] = now
    slots[wire.SLOT["factor"]] = 1
    slots[wire.SLOT["loss_bits"]] = wire.float_bits(float("nan"))
    slots[wire.SLOT["magic"]] = wire.MAGIC
    return slots
