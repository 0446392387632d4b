"""The script's output, read for what it means, from the first byte on.

The matcher is loaded after the child was started; what came before waits here.  A script that prints faster than its
output can be searched is read in samples: what was skipped is counted and said.  Must not hold up the output.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from stallguard.core.events import Event, ProbeNote

if TYPE_CHECKING:
    from stallguard.sensors.log_matcher import Matcher

FIRST = 1 << 20  # bytes that may wait for the matcher; what exceeds them is not read
MB = 1e6
LOADING = 5.0  # seconds that the end of an attempt waits for the matcher to be there


class Matching:
    """Posts what a matcher finds.  `feed` and `finish` come from the threads of the output and of the child's end."""

    def __init__(
        self, post: Callable[[Event], None], now: Callable[[], float], attempt: Callable[[], int]
    ) -> None:
        """`attempt` returns the number of the present attempt."""
        self._post, self._now, self._attempt = post, now, attempt
        self._skipped = 0  # bytes of this attempt's output that were not read
        self._matcher: Matcher | None = None
        self._early = bytearray()
        # Two threads use `_early` until the matcher is there; after that the lock is rarely contended.
        self._lock = threading.Lock()
        self._ready = threading.Event()

    def begin(self, matcher: Matcher) -> None:
        """Read with `matcher` from now on, and first what waits."""
        with self._lock:
            self._matcher = matcher
            self._post_all(matcher.feed(bytes(self._early), self._now()))
            self._early.clear()
            if self._skipped:
                matcher.skip()
        self._ready.set()

    def feed(self, data: bytes, skipped: int = 0) -> None:
        """Read what the script said.  `skipped`: bytes before `data` that were not read."""
        with self._lock:
            self._skip(skipped)
            if self._matcher is not None:
                self._post_all(self._matcher.feed(data, self._now()))
            elif len(self._early) < FIRST:
                self._early += data
            else:
                self._skip(len(data))

    def _skip(self, size: int) -> None:
        if size and not self._skipped:
            self._note(
                "the script prints faster than its output can be searched for errors: it is searched in samples"
            )
        self._skipped += size
        if size and self._matcher is not None:
            self._matcher.skip()

    def finish(self) -> None:
        """Read what an attempt that has ended left without a line's end, and say how much was skipped."""
        self._ready.wait(LOADING)
        with self._lock:
            if self._matcher is not None:
                self._post_all(self._matcher.finish(self._now()))
            if self._skipped:
                self._note(
                    f"{self._skipped / MB:.1f} MB of the output came too fast to be searched for errors"
                )
            self._skipped = 0

    def _note(self, text: str) -> None:
        now, attempt = self._now(), self._attempt()
        self._post(ProbeNote(at=now, attempt=attempt, kind="unsearched", text=text))

    def _post_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._post(event)
