"""The one thing that threads share: events in, in order, out to the one deciding thread.

`put` of a SimpleQueue is re-entrant, so a signal handler may post too.
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from collections.abc import Callable

from stallguard.core.events import Event, Ticked

LONGEST_NAP = 60.0  # seconds; nothing waits longer, so a mistaken deadline costs a minute, not a night


class Mailbox:
    """Events for the deciding thread.  `now`: the monotonic clock, seconds."""

    def __init__(self, now: Callable[[], float], observe: Callable[[Event], None] | None = None) -> None:
        """Start empty.  `observe` is called with each event that is posted, by the thread that posts it."""
        self._observe = observe
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._next: deque[Event] = deque()
        self._now = now

    def post(self, event: Event) -> None:
        """Put an event in; never blocks."""
        if self._observe is not None:
            self._observe(event)
        self._queue.put(event)

    def post_next(self, event: Event) -> None:
        """Put in what the deciding thread itself has just done; it precedes all that waits.

        So a stop that came while a child was being started finds a child that it can end.
        """
        self._next.append(event)

    def rest(self) -> list[Event]:
        """Take out all that waits; for the end of a run."""
        left = [*self._next]
        self._next.clear()
        with contextlib.suppress(queue.Empty):
            while True:
                left.append(self._queue.get_nowait())
        return left

    def wait(self, wake: float) -> float:
        """Return for how many seconds `next` would wait at most."""
        return 0.0 if self._next else min(max(wake - self._now(), 0.0), LONGEST_NAP)

    def next(self, wake: float) -> Event:
        """Return the next event, or a Ticked when the clock reaches `wake`."""
        if self._next:
            return self._next.popleft()
        wait = self.wait(wake)
        try:
            return self._queue.get(timeout=wait) if wait else self._queue.get_nowait()
        except queue.Empty:
            return Ticked(at=self._now())
