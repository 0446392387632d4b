"""SIGTERM during a fit: one last checkpoint where the main thread still runs, then death by that signal.

Only where the script has no handler of its own.  Python runs a handler between two of its own instructions:
in a step that never comes back it never runs, so a thread hears of the signal through the wake-up descriptor
and, after a little while, lets the default act.  Outside a fit nothing is installed.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import Any

LOOK = 0.25  # seconds between two looks for the signal
PATIENCE = 2.0  # s that a step may take to come back before the default acts
LONGEST = 8.0  # s more for the batch to end; a save that is being written may take as long as it needs
TERM = signal.SIGTERM


class Farewell:
    """The handler, from `arm` to `disarm`.  `asked` is true once SIGTERM came."""

    def __init__(self) -> None:
        self.asked = False
        self.saving = False
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._masks: dict[int, set[signal.Signals | int]] = {}  # of threads that are forking
        os.register_at_fork(before=self._fork, after_in_parent=self._parent, after_in_child=self._child)

    def arm(self) -> None:
        """Install the handler where that is possible and nobody else has one."""
        main = threading.current_thread() is threading.main_thread()
        if self._pair is not None or not main or signal.getsignal(TERM) is not signal.SIG_DFL:
            return
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        if before != -1:  # an event loop's: it needs every signal that we would take
            signal.set_wakeup_fd(before)
            reader.close()
            writer.close()
            return
        self._pair = reader, writer
        signal.signal(TERM, self._handle)
        threading.Thread(target=self._listen, args=(reader,), name="stallguard-term", daemon=True).start()

    def disarm(self) -> None:
        """Take the handler out; where the signal came meanwhile, die of it now."""
        if self._pair is None:
            return
        (_, writer), self._pair = self._pair, None
        self._take_out(writer)
        writer.close()  # ends the thread, which closes its own end
        if self.asked:
            self.die()

    def die(self) -> None:
        """End the process by SIGTERM, as it would have without us."""
        signal.signal(TERM, signal.SIG_DFL)
        os.kill(os.getpid(), TERM)

    def _take_out(self, writer: socket.socket) -> None:
        if signal.getsignal(TERM) == self._handle:
            signal.signal(TERM, signal.SIG_DFL)
        current = signal.set_wakeup_fd(-1)
        if current not in (-1, writer.fileno()):
            signal.set_wakeup_fd(current)  # somebody else's since: theirs stays

    def _fork(self) -> None:
        """Hold SIGTERM back while a worker is forked: until it is told apart, its signals would be its parent's."""
        if self._pair is not None:
            self._masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, {TERM})

    def _parent(self) -> None:
        mask = self._masks.pop(threading.get_ident(), None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _child(self) -> None:
        """Leave a forked worker alone: it must die of SIGTERM, and its parent must not hear of it."""
        if self._pair is not None:
            (_, writer), self._pair = self._pair, None
            self._take_out(writer)
        self._parent()

    def _handle(self, *_: Any) -> None:
        self.asked = True

    def _listen(self, reader: socket.socket) -> None:
        """Wait for the signal in a thread: the main one may be in a call that never returns."""
        with reader:
            heard = b"-"
            while heard and TERM not in heard:
                heard = _next(reader)
            if heard and not self._taken():
                _let_default_act()

    def _taken(self) -> bool:
        """Whether the main thread took the signal and got to the end of its batch in its time."""
        pause = threading.Event().wait
        pause(PATIENCE)
        if not self.asked:
            return False
        waited = 0.0
        while self.saving or waited < LONGEST:
            pause(0.25)
            waited += 0.25
        return False


def _next(reader: socket.socket) -> bytes:
    """Wait for a byte by looking.

    To whoever counts the waits of this process a thread that sleeps is one of the runtime's own timers; one that
    waits on a socket would look like a wait for the outside, and hide a deadlock.
    """
    while True:
        try:
            return reader.recv(64, socket.MSG_DONTWAIT)
        except BlockingIOError:
            time.sleep(LOOK)


def _let_default_act() -> None:
    """Restore the default by the C library and resend: `signal.signal` works in the main thread only."""
    import ctypes

    ctypes.CDLL(None).signal(int(TERM), None)
    os.kill(os.getpid(), TERM)
