"""Handles SIGTERM during a fit: one last checkpoint if the main thread still runs, then the end by that signal.

Only if the script has no handler of its own.  Python runs a handler between two of its own instructions, so not in a
step that never returns.  So a thread is woken through the wake-up descriptor, and after a short time ends the process
by the signal's default action.  Outside a fit nothing is installed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any, Callable

from .. import native_threads

SHORT = 0.05  # s between two checks by the main thread
LOOK = 0.25  # s between two checks for the signal
PATIENCE = 2.0  # s that a step can take to return before the default action
ANSWER = 5.0  # s within which the supervisor answers the note with SIGTERM, also on a busy machine
LONGEST = 8.0  # s more for the batch to end; a save in progress has no limit
TERM = signal.SIGTERM


class SigtermHandler:
    """The handler, from `arm` to `disarm`.  `asked` is true after SIGTERM came; `on_signal()` is called then.

    The thread and its pipe are made once in a process: a thread for each fit would cost a millisecond each.  Its first
    call is `begins`.
    """

    def __init__(self, on_signal: Callable[[], None] = lambda: None, begins: Callable[[], None] = lambda: None) -> None:
        self._begins = begins
        self.asked = False
        self.saving = False
        self._on_signal = on_signal
        self._armed = False
        self._pipe: tuple[int, int] | None = None
        self._masks: dict[int, set[signal.Signals | int]] = {}  # of threads that are forking
        os.register_at_fork(before=self._fork, after_in_parent=self._parent, after_in_child=self._child)

    def arm(self) -> None:
        """Install the handler if that is possible and the script has none."""
        main = threading.current_thread() is threading.main_thread()
        if self._armed or not main or signal.getsignal(TERM) is not signal.SIG_DFL:
            return
        before = signal.set_wakeup_fd(self._writer(), warn_on_full_buffer=False)
        if before != -1:  # an event loop's: it needs every signal
            signal.set_wakeup_fd(before)
            return
        self._armed = True
        signal.signal(TERM, self._handle)

    def reclaim(self) -> None:
        """Install the handler again, in place of one that a library has put around it."""
        if self._armed:
            signal.signal(TERM, self._handle)

    def _writer(self) -> int:
        """Return the descriptor to which the signal's number is written; start the thread that reads it."""
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            native_threads.start(self._listen, self._pipe[0])
        return self._pipe[1]

    def disarm(self) -> None:
        """Remove the handler; if the signal came meanwhile, end the process by it."""
        if self._armed:
            self._take_out()
            if self.asked:
                self.die()

    def wait(self) -> None:
        """Sleep until the supervisor sends SIGTERM, a few seconds at most; a handler of the script runs meanwhile."""
        until = time.monotonic() + ANSWER
        while not self.asked and time.monotonic() < until:
            time.sleep(SHORT)

    def die(self) -> None:
        """End the process by SIGTERM, as it would end without the probe."""
        signal.signal(TERM, signal.SIG_DFL)
        os.kill(os.getpid(), TERM)

    def _ours(self) -> bool:
        """Return whether the handler is installed, and the script has set none of its own since."""
        return self._armed and signal.getsignal(TERM) == self._handle

    def _take_out(self) -> None:
        ours, self._armed = self._ours(), False
        if ours:
            signal.signal(TERM, signal.SIG_DFL)
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer()):
            signal.set_wakeup_fd(current)  # another program's, set since: it stays

    def _fork(self) -> None:
        """Block SIGTERM while a worker is forked: until `_child` ran, the worker's signals would reach its parent."""
        if self._armed:
            self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {TERM})

    def _parent(self) -> None:
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _child(self) -> None:
        """Remove the handler in a forked worker: SIGTERM must end it, and must not reach its parent."""
        if self._armed:
            self._take_out()
        for end in self._pipe or ():
            os.close(end)
        self._pipe = None
        self._parent()

    def _handle(self, *_: Any) -> None:
        self.asked = True
        self._on_signal()

    def _listen(self, reader: int) -> None:
        """Wait for the signal; let its default action end a process whose main thread never returns from a call."""
        try:
            self._begins()
            while True:
                if TERM not in _next(reader):
                    continue
                # The main thread has time to end its batch; if it does, it ends the process meanwhile.  Not by an
                # Event's wait: a thread in `threading` counts as one that can end a deadlock (wait_evidence.py).
                time.sleep(PATIENCE)
                waited = 0.0
                while self.asked and (self.saving or waited < LONGEST):
                    time.sleep(LOOK)
                    waited += LOOK
                if self._ours():
                    import ctypes

                    # Through the C library: `signal.signal` works in the main thread only.
                    ctypes.CDLL(None).signal(int(TERM), None)
                    os.kill(os.getpid(), TERM)
        except Exception:
            return  # the interpreter shuts down


def _next(reader: int) -> bytes:
    """Wait for bytes by polling.

    The supervisor counts what the threads of this process wait for.  Until the hello names this thread, a thread that
    sleeps counts as a timer of the runtime; one that waits on a pipe would count as a wait for another process, and
    hide a deadlock.
    """
    while True:
        try:
            return os.read(reader, 64)
        except BlockingIOError:
            time.sleep(LOOK)
