"""The script's output, read for what it means, from the first byte on.

The matcher is loaded after the child was started; what came before waits here.  May not hold up the output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stallguard.core.events import Event

if TYPE_CHECKING:
    from stallguard.sensors.output import Matcher

FIRST = 1 << 20  # bytes that may wait for the matcher; what exceeds them is not read
LOADING = 5.0  # seconds that the end of an attempt waits for the matcher to be there


class Matching:
    """Posts what a matcher finds.  `feed` and `finish` come from the threads of the output and of the child's end."""

    def __init__(self, post: Callable[[Event], None], now: Callable[[], float]) -> None:
        self._post, self._now = post, now
        self._matcher: Matcher | None = None
        self._early = bytearray()
        self._lock = (
            threading.Lock()
        )  # taken for the moments before the matcher is there, and uncontended after
        self._ready = threading.Event()

    def begin(self, matcher: Matcher) -> None:
        """Read with `matcher` from now on, and first what waits."""
        with self._lock:
            self._matcher = matcher
            self._tell(matcher.feed(bytes(self._early), self._now()))
            self._early.clear()
        self._ready.set()

    def feed(self, data: bytes) -> None:
        """Read what the script said."""
        with self._lock:
            if self._matcher is not None:
                self._tell(self._matcher.feed(data, self._now()))
            elif len(self._early) < FIRST:
                self._early += data

    def finish(self) -> None:
        """Read what an attempt that has ended left without a line's end."""
        self._ready.wait(LOADING)
        with self._lock:
            if self._matcher is not None:
                self._tell(self._matcher.finish(self._now()))

    def _tell(self, events: Iterable[Event]) -> None:
        for event in events:
            self._post(event)
