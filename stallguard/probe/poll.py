"""The poll thread: reads the counters of Keras' optimizers, twice a second.

It alone sees the batches of a loop that runs inside one graph, and it alone stops coming back when the device
is stuck while Python goes on: reading a counter waits for the device, so it has a thread of its own.
"""

from __future__ import annotations

import atexit
import os
from _thread import allocate_lock, start_new_thread
from time import thread_time

from . import wire
from .beats import POLL
from .monotonic import monotonic_ns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .beats import Beats

PERIOD = 0.5  # s between two reads
SHARE = 100  # a pause is at least this many times the processor time of the read before it

_ITERATIONS, _ITERATIONS_NS, _POLL_NS = (wire.SLOT[n] for n in ("iterations", "iterations_ns", "poll_ns"))
_FITS = wire.SLOT["fits"]
FAILURES = 20  # reads in a row that may fail before an optimizer is left alone
FAREWELL = 0.25  # s that the exit may wait for the last read


class Watched:
    """One optimizer, held weakly, with the count that was read last."""

    __slots__ = ("failures", "last", "reference")

    def __init__(self, reference: Any) -> None:
        self.reference = reference
        self.last = 0
        self.failures = 0

    def advance(self) -> int:
        """Read the counter; return by how much it grew (0 too where it cannot be read)."""
        try:
            # Not by the property: the old optimizers create their variable on the first use of it.
            value = int(vars(self.reference())["_iterations"].numpy())
        except Exception:
            self.failures += 1
            return 0
        grown, self.last, self.failures = value - self.last, value, 0
        return grown

    def alive(self) -> bool:
        """Whether it is worth another read."""
        return self.failures < FAILURES and self.reference() is not None


class Poller:
    """The thread and its judgement."""

    def __init__(self, beats: Beats, begins: Callable[[], None] = lambda: None) -> None:
        """`begins` is called by the thread, first of all."""
        self.beats = beats
        self._begins = begins
        self._barred = False
        self._watch_nothing()
        self._calls = 0
        self._state = (0, 0, 0)
        self._moving = False
        self._owed = 0

    def watch(self, optimizer: Any) -> None:
        """Watch one more optimizer; the thread starts with the first."""
        from weakref import ref

        self._watched.append(Watched(ref(optimizer)))
        if not self._running and not self._barred:
            self._start()

    def _start(self) -> None:
        self._running = True
        self._wake.acquire()
        self._done.acquire()
        os.register_at_fork(after_in_child=self._forked)
        # Registered after the library's own handlers, so run before them: no read may meet their tearing down.
        atexit.register(self.finish)
        start_new_thread(self._run, ())

    def _run(self) -> None:
        self._begins()
        pause = PERIOD
        while not self._wake.acquire(timeout=pause):
            began = thread_time()
            self.look()
            pause = max(PERIOD, SHARE * (thread_time() - began))
        if self.beats.polled:
            self.look()  # the updates since the last read are beats that nobody else counts
        self._done.release()

    def finish(self) -> None:
        """At exit: end the thread, with a last read if the beats depend on it; a stuck one is not waited for."""
        if self._running:
            self._running = False
            self._wake.release()
            self._done.acquire(timeout=FAREWELL)

    def _forked(self) -> None:
        """Begin again: a forked process has no thread, and reading what its parent's device holds could block."""
        self._barred = self.beats.claimed  # forked from a process that trains: a worker, which needs none
        self._watch_nothing()

    def _watch_nothing(self) -> None:
        self._watched: list[Watched] = []
        self._running = False
        self._wake = allocate_lock()
        self._done = allocate_lock()

    def look(self) -> None:
        """Read all counters once, store what they say, and judge."""
        beats = self.beats
        earlier = beats.calls
        grown = self._read()
        if grown is not None:
            self._judge(grown, beats.calls - self._calls)
        self._calls = earlier  # what ended during the read may be in both intervals, never in none

    def _read(self) -> Optional[int]:
        self._watched = [one for one in self._watched if one.alive()]
        grown = [(one.advance(), one) for one in self._watched]
        read = [(growth, one) for growth, one in grown if not one.failures]
        if not read:
            return None
        slots = self.beats.slots
        slots[_POLL_NS] = monotonic_ns()
        growth, one = max(read, key=lambda pair: pair[0])  # two optimizers step together in one batch
        if growth > 0 or slots[_ITERATIONS] < 0:
            slots[_ITERATIONS] = one.last
            slots[_ITERATIONS_NS] = slots[_POLL_NS]
        if growth > 0:
            self.beats.moved()
        return max(growth, 0)

    def _judge(self, grown: int, calls: int) -> None:
        """Count the batches that no other hook can see: more updates than calls of any hook explain."""
        beats = self.beats
        if self._elsewhere():
            beats.polled = False
            self._owed = 0
        elif beats.polled:
            self._go_on(grown, calls)
        else:
            self._take_over(self._owed + grown, calls)
        self._moving = grown > 0

    def _take_over(self, grown: int, calls: int) -> None:
        # One call may be running, its update made: that one waits for the next look.
        self._owed = max(0, min(grown - calls, 1))
        # The first jump without any call at all may be a script that sets the counter.
        if grown > calls + 1 and (calls or self.beats.inside or self._moving):
            self._owed = 0
            self.beats.polled = True
            self.beats.add(POLL, grown - calls)

    def _go_on(self, grown: int, calls: int) -> None:
        beats = self.beats
        beats.polled = not calls or grown > calls
        # Calls that no update explains are another loop's, but for one: the end of the loop in a graph.
        ended = grown if beats.polled else max(grown, calls - 1)
        if ended:
            beats.add(POLL, ended)

    def _elsewhere(self) -> bool:
        """Whether the interval is no measure: Keras' loop counted, or a checkpoint set the counters."""
        beats = self.beats
        state = beats.fitting, beats.slots[_FITS], beats.restores
        changed = state != self._state or bool(beats.fitting)
        self._state = state
        return changed
