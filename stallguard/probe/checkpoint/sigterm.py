"""SIGTERM during a fit: one last checkpoint where the main thread still runs, then death by that signal.

Only where the script has no handler of its own.  Python runs a handler between two of its own instructions:
in a step that never comes back it never runs, so a thread hears of the signal through the wake-up descriptor
and, after a little while, lets the default act.  Outside a fit nothing is installed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from _thread import start_new_thread
from typing import Any, Callable

SHORT = 0.05  # seconds between two looks of the main thread
LOOK = 0.25  # seconds between two looks for the signal
PATIENCE = 2.0  # s that a step may take to come back before the default acts
ANSWER = 5.0  # s that the supervisor may take to answer the note with SIGTERM, on a busy machine too
LONGEST = 8.0  # s more for the batch to end; a save that is being written may take as long as it needs
TERM = signal.SIGTERM


class Farewell:
    """The handler, from `arm` to `disarm`.  `asked` is true once SIGTERM came; `attend()` is called then.

    The thread and its pipe are made once a process: a thread a fit would cost short fits a millisecond each.  It calls
    `begins` first of all.
    """

    def __init__(
        self, attend: Callable[[], None] = lambda: None, begins: Callable[[], None] = lambda: None
    ) -> None:
        self._begins = begins
        self.asked = False
        self.saving = False
        self._attend = attend
        self._armed = False
        self._pipe: tuple[int, int] | None = None
        self._masks: dict[int, set[signal.Signals | int]] = {}  # of threads that are forking
        os.register_at_fork(before=self._fork, after_in_parent=self._parent, after_in_child=self._child)

    def arm(self) -> None:
        """Install the handler where that is possible and nobody else has one."""
        main = threading.current_thread() is threading.main_thread()
        if self._armed or not main or signal.getsignal(TERM) is not signal.SIG_DFL:
            return
        before = signal.set_wakeup_fd(self._writer(), warn_on_full_buffer=False)
        if before != -1:  # an event loop's: it needs every signal that we would take
            signal.set_wakeup_fd(before)
            return
        self._armed = True
        signal.signal(TERM, self._handle)

    def _writer(self) -> int:
        """Return where the signal's number is written; the thread at the other end starts with it."""
        if self._pipe is None:
            self._pipe = os.pipe()
            for end in self._pipe:
                os.set_blocking(end, False)
            start_new_thread(self._listen, (self._pipe[0],))
        return self._pipe[1]

    def disarm(self) -> None:
        """Take the handler out; where the signal came meanwhile, die of it now."""
        if self._armed:
            self._take_out()
            if self.asked:
                self.die()

    def wait(self) -> None:
        """Sleep until the supervisor sends SIGTERM, or for a few seconds if it sends none.

        If the script has a handler of its own, that one runs meanwhile, in this thread.
        """
        until = time.monotonic() + ANSWER
        while not self.asked and time.monotonic() < until:
            time.sleep(SHORT)

    def die(self) -> None:
        """End the process by SIGTERM, as it would have without us."""
        signal.signal(TERM, signal.SIG_DFL)
        os.kill(os.getpid(), TERM)

    def _ours(self) -> bool:
        """Whether the handler is in, and the script has set none of its own since."""
        return self._armed and signal.getsignal(TERM) == self._handle

    def _take_out(self) -> None:
        ours, self._armed = self._ours(), False
        if ours:
            signal.signal(TERM, signal.SIG_DFL)
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, self._writer()):
            signal.set_wakeup_fd(current)  # somebody else's since: theirs stays

    def _fork(self) -> None:
        """Hold SIGTERM back while a worker is forked: until it is told apart, its signals would be its parent's."""
        if self._armed:
            self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {TERM})

    def _parent(self) -> None:
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _child(self) -> None:
        """Leave a forked worker alone: it must die of SIGTERM, and its parent must not hear of it."""
        if self._armed:
            self._take_out()
        for end in self._pipe or ():
            os.close(end)
        self._pipe = None
        self._parent()

    def _handle(self, *_: Any) -> None:
        self.asked = True
        self._attend()

    def _listen(self, reader: int) -> None:
        """Wait for the signal in a thread: the main one may be in a call that never returns."""
        try:
            self._begins()
            while True:
                if TERM in _next(reader):
                    self._wait()
                    if self._ours():
                        _let_default_act()
        except Exception:
            return  # the interpreter is being torn down around this thread: silence is right

    def _wait(self) -> None:
        """Give the main thread the time to end its batch: where it does, the process ends meanwhile."""
        pause = threading.Event().wait
        pause(PATIENCE)
        waited = 0.0
        while self.asked and (self.saving or waited < LONGEST):
            pause(LOOK)
            waited += LOOK


def _next(reader: int) -> bytes:
    """Wait for bytes by looking.

    Until the hello has named this thread, whoever counts the waits of this process takes one that sleeps for a timer
    of the runtime's; one that waits on a pipe would look like a wait for the outside, and hide a deadlock.
    """
    while True:
        try:
            return os.read(reader, 64)
        except BlockingIOError:
            time.sleep(LOOK)


def _let_default_act() -> None:
    """Restore the default by the C library and resend: `signal.signal` works in the main thread only."""
    import ctypes

    ctypes.CDLL(None).signal(int(TERM), None)
    os.kill(os.getpid(), TERM)
