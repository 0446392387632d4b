"""A training that is not our child any more, because it outlived the stallguard that started it.

Its end can be noticed but not waited for: macOS tells the exit status all the same (kqueue), Linux tells it to
nobody but a parent.  Offers what supervisor.child offers.  May not decide when anything is ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from stallguard import outcome
from stallguard.outcome import Identity
from stallguard.supervisor.child import (
    NOTE_EXIT_DETAIL,
    NOTE_EXITSTATUS,
    Ended,
    Post,
    from_kevent,
    signal_group,
    sweep,
)

LOOK = 0.5  # seconds between two looks where the system cannot wake us
UNKNOWN = -int(signal.SIGKILL)  # what is told of an end that nobody saw and that was none in good order

if sys.platform == "darwin":

    def wait(who: Identity) -> Ended | None:
        """Wait for the end of a process that is not ours; None where it cannot be told how it ended."""
        wanted = select.KQ_NOTE_EXIT | NOTE_EXITSTATUS | NOTE_EXIT_DETAIL
        watch = select.kevent(who.pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, wanted)
        with contextlib.closing(select.kqueue()) as queue, contextlib.suppress(OSError):
            return from_kevent(queue.control([watch], 1, None)[0].data)
        return look_until_gone(who)

else:

    def wait(who: Identity) -> Ended | None:
        """Wait for the end of a process that is not ours; None: it cannot be told how it ended."""
        try:
            descriptor = os.pidfd_open(who.pid)
        except OSError:  # gone already, or a kernel older than 5.3
            return look_until_gone(who)
        try:
            if outcome.lives(who):
                select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
        return None


def look_until_gone(who: Identity) -> Ended | None:
    """Wait for the end by looking; nothing is known of how it ended."""
    while outcome.lives(who):
        time.sleep(LOOK)
    return None


class Adopted:
    """An attempt's process.  `guess` returns the exit code to tell where the system does not."""

    def __init__(
        self, who: Identity, post: Post, before_post: Callable[[], None], guess: Callable[[], int]
    ) -> None:
        """Watch the process `who`; `post` and `before_post` are called as Child's."""
        self.pid, self.identity = who.pid, who
        self._post, self._before_post, self._guess = post, before_post, guess
        self._asked = False
        self._thread = threading.Thread(target=self._watch, name="adopted", daemon=True)
        self._thread.start()

    def signal(self, name: str) -> bool:
        """Send a signal to the whole group; False where nobody is left."""
        if not outcome.lives(self.identity):
            return False
        self._asked = self._asked or name in ("TERM", "KILL", "INT")
        return signal_group(self.pid, getattr(signal, f"SIG{name}"))

    def reap(self) -> None:
        """Nothing: its new parent does."""

    def _watch(self) -> None:
        end = wait(self.identity)
        code = UNKNOWN
        try:
            code = self._guess() if end is None else end.code
            if self._asked or code != 0:
                sweep(self.pid)
            self._before_post()
        finally:
            self._post(code, end.memory_kill if end else None)
