"""What the training's thread waits for, by the Python frame in which it stands (probe/wait_evidence.py).

This module must not know what else the process tree does.
"""

from __future__ import annotations

import msgspec

# Kinds of waits (probe/wire.py, WAITS) that end by themselves, or by something outside.
AWAKE = frozenset(("timed", "sleep", "io"))
HELD = "held"  # no kind of the probe's: none of its records comes, because no Python thread can run
LATE = 2.5  # seconds after which a change in the frames is known here at the latest: two looks and a record


class PythonWait(msgspec.Struct, frozen=True):
    """What the training's thread waits for while it stands still.

    `since`: watched seconds; `kind`: of probe/wire.py, WAITS; `wakers`: Python threads that could end the wait, -1: not
    known.
    """

    kind: str
    since: float
    wakers: int = -1

    @property
    def locked(self) -> bool:
        """Whether it waits for a lock, and no Python thread could release it."""
        return self.kind == "lock" and self.wakers == 0

    @property
    def in_library(self) -> bool:
        """Whether it stands in a call of the training library, which can read data or wait for a device."""
        return self.kind == "library" or self.for_device

    @property
    def for_device(self) -> bool:
        """Whether it stands in a call that certainly waits for a device."""
        return self.kind == "device"

    @property
    def in_place(self) -> bool:
        """Whether it stays in a few lines for a reason that is not known: a loop, or a call in C."""
        return self.kind == "place" or self.in_call

    @property
    def in_call(self) -> bool:
        """Whether it stays at one instruction for a reason that is not known, or no Python thread can run."""
        return self.kind in ("call", HELD)

    @property
    def wakes(self) -> bool:
        """Whether something could wake it: time, another process or host, or another Python thread.

        A call of the library too: it can wait for a function of the script in another thread, which sleeps.
        """
        return self.kind in AWAKE or (self.kind in ("lock", "library", "device") and self.wakers > 0)


def deadlocked_from(idle: float, wait: PythonWait | None, locked: float | None) -> float:
    """Return from when a deadlock counts, in a tree that is idle since `idle` (watched seconds).

    `locked`: since when the frame has shown a lock that no Python thread could release.  The frame shows when that wait
    began, and two readings of the tree can lie a second apart: so idleness that is seen a little later is as old.
    """
    if wait is None or locked is None:
        return idle
    return max(idle - LATE, wait.since, locked - LATE)
