"""What the training's thread waits for, as its innermost Python frame shows it.

The probe looks at the frames of all Python threads (probe/wait_evidence.py).  For an idle tree there are two sources:

- the census: the wait sites of all threads of the tree, if the system shows them (Linux);
- the frame: what the training's thread waits for, and whether another Python thread could end that wait.

With a census, the census decides, and the frame can only speak against a deadlock: a script that sleeps, reads from a
socket or waits with a timeout is none, even if the census took its thread for one of the runtime's own timers, nor is
a function of the script that the library called in another thread, and that does so. The same holds for a call of the
training library in a job with a connection to another host, because the library can be reading its data there with
threads of its own. The reverse does not hold: a lock in the frame does not outweigh a thread of the census that
something could wake. So two sources give fewer false alarms than one.

Without a census the frame decides alone, and it does not show native threads.  They need not be seen, because a lock of
Python is released by Python code.  That code runs in a Python thread, which has a frame, or in a native thread that
calls Python when it is done: a client of a remote service with callbacks, or a runtime.  TensorFlow calls Python only
for generators and `py_function`, and the training awaits their result inside the library, not in a lock of its own.  So
a lock is a deadlock only if the tree is one process, because a worker process could release it, and if it is known
whether the tree has a connection to another host: with one, `remote_deadlock` holds as with a census.  What is left is
a program without any connection whose native thread is idle for longer than the threshold and then calls Python.

This module must not judge how long is too long.
"""

from __future__ import annotations

import msgspec

# Kinds of waits (probe/wire.py, WAITS) that end by themselves, or by something outside.
AWAKE = frozenset(("timed", "sleep", "io"))
HELD = "held"  # no kind of the probe's: none of its records comes, because no Python thread can run
_LATE = 2.5  # seconds after which a change in the frames is known here at the latest: two looks and a record


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
        return self.kind == "library"

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
        return self.kind in AWAKE or (self.kind in ("lock", "library") and self.wakers > 0)


def deadlocked_from(idle: float, wait: PythonWait | None, locked: float | None) -> float:
    """Return from when a deadlock counts, in a tree that is idle since `idle` (watched seconds).

    `locked`: since when the frame has shown a lock that no Python thread could release.  The frame shows when that wait
    began, and two readings of the tree can lie a second apart: so idleness that is seen a little later is as old.
    """
    if wait is None or locked is None:
        return idle
    return max(idle - _LATE, wait.since, locked - _LATE)
