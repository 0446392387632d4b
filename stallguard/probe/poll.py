"""The poll thread: reads the counters of Keras' optimizers, twice a second.

Only these counters show the batches of a loop that runs inside one graph, and a device that is stuck while Python goes
on.  Reading a counter waits for the device, so it has a thread of its own.
"""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock
from time import thread_time

from . import native_threads, wire
from .beats import POLL, monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .beats import Beats

PERIOD = 0.5  # s between two reads
SHARE = 100  # a pause is at least this many times the processor time of the read before it

_ITERATIONS, _ITERATIONS_NS, _POLL_NS = (wire.SLOT[n] for n in ("iterations", "iterations_ns", "poll_ns"))
_FITS = wire.SLOT["fits"]
FAILURES = 20  # failed reads in a row after which an optimizer is no longer read
LAST_READ = 0.25  # s that the exit waits for the last read


class PolledOptimizer:
    """One optimizer (a weak reference) with the count that was read last."""

    __slots__ = ("failures", "last", "reference")

    def __init__(self, reference: Any) -> None:
        self.reference = reference
        self.last = 0
        self.failures = 0

    def advance(self) -> int:
        """Read the counter; return its increase, 0 if it cannot be read."""
        try:
            # Not by the property: legacy optimizers create their variable at its first use.
            value = int(vars(self.reference())["_iterations"].numpy())
        except Exception:
            self.failures += 1
            return 0
        grown, self.last, self.failures = value - self.last, value, 0
        return grown

    def alive(self) -> bool:
        """Return whether to read it again."""
        return self.failures < FAILURES and self.reference() is not None


class Poller:
    """The thread, and its decision whether it counts the batches."""

    def __init__(self, beats: Beats, begins: Callable[[], None] = lambda: None) -> None:
        """`begins` is the first call that the thread makes."""
        self.beats = beats
        self._begins = begins
        self._barred = False
        self._watch_nothing()
        self._calls = 0
        self._state = (0, 0, 0)
        self._moving = False
        self._owed = 0

    def _watch_nothing(self) -> None:
        self._watched: list[PolledOptimizer] = []
        self._running = False
        self._wake = allocate_lock()
        self._done = allocate_lock()

    def watch(self, optimizer: Any) -> None:
        """Watch one more optimizer; the thread starts with the first."""
        from weakref import ref

        self._watched.append(PolledOptimizer(ref(optimizer)))
        if not self._running and not self._barred:
            self._running = True
            self._wake.acquire()
            self._done.acquire()
            os.register_at_fork(after_in_child=self._forked)
            # Registered after the library's own handlers, so called before them: no read runs during their teardown.
            atexit.register(self.finish)
            native_threads.start(self._run)

    def _run(self) -> None:
        self._begins()
        pause = PERIOD
        while not self._wake.acquire(timeout=pause):
            began = thread_time()
            self.look()
            pause = max(PERIOD, SHARE * (thread_time() - began))
        if self.beats.polled:
            self.look()  # only this thread counts the updates since the last read
        self._done.release()

    def finish(self) -> None:
        """End the thread at exit, after a last read if this thread counts the batches; do not wait for a stuck read."""
        if self._running:
            self._running = False
            self._wake.release()
            self._done.acquire(timeout=LAST_READ)

    def _forked(self) -> None:
        """Begin again in a forked process: it has no thread, and a read of its parent's device could block."""
        self._barred = self.beats.claimed  # forked from a process that trains: a worker, which is not watched
        self._watch_nothing()

    def look(self) -> None:
        """Read all counters once, store them, and count the batches that no other hook counts."""
        calls, state = self.beats.calls, self._state_now()
        grown = self._read()
        if grown is not None:
            self._judge(grown, self.beats.calls - self._calls)
        # Both of before the read: a call, or a fit, that ended during it can be in both intervals, never in none.
        self._calls, self._state = calls, state

    def _state_now(self) -> tuple[int, int, int]:
        """Return what changes if Keras' loop counts, or if a checkpoint sets the counters."""
        return self.beats.fitting, self.beats.slots[_FITS], self.beats.restores

    def _read(self) -> Optional[int]:
        for ended in [one for one in self._watched if not one.alive()]:
            self._watched.remove(ended)  # in place: the training's thread can append one at the same time
        grown = [(one.advance(), one) for one in self._watched]
        read = [(growth, one) for growth, one in grown if not one.failures]
        if not read:
            return None
        slots = self.beats.slots
        slots[_POLL_NS] = monotonic_ns()
        growth, one = max(read, key=lambda pair: pair[0])  # two optimizers can update in the same batch
        if growth > 0 or slots[_ITERATIONS] < 0:
            slots[_ITERATIONS] = one.last
            slots[_ITERATIONS_NS] = slots[_POLL_NS]
        if growth > 0:
            self.beats.moved()
        return max(growth, 0)

    def _judge(self, grown: int, calls: int) -> None:
        """Count the batches that no other hook observes: the updates beyond the calls that hooks counted."""
        beats = self.beats
        updates = self._owed + grown  # those that no call has accounted for
        if beats.fitting or self._state_now() != self._state:
            beats.polled = False
            self._owed = 0
        elif beats.polled:
            beats.polled = not calls or grown > calls
            # Calls without an update belong to another loop, except one: the end of the loop in a graph.
            ended = grown if beats.polled else max(grown, calls - 1)
            if ended:
                beats.add(POLL, ended)
        elif updates > calls + 1 and (calls or beats.inside or self._moving):
            # Not at the first jump without any call: a script can have set the counter.
            self._owed = 0
            beats.polled = True
            beats.add(POLL, updates - calls)
        else:
            # One call can still be running with its update made: it is counted at the next look.
            self._owed = max(0, min(updates - calls, 1))
        self._moving = grown > 0
