"""The probe's one thread: carries the record and the notes to the supervisor's socket.

At most 20 records a second while things change, a pulse once a second when nothing does, the hello whenever it
changed.  Never blocks: what the socket does not take at once is dropped (records) or tried again (notes).  When
the supervisor is gone it keeps quiet, and greets again when it is back.

The thread is started without `threading`, so that the script's own count of threads stays what it was, and must
import nothing: an import from here could make `threading` take this thread for the main one.
"""

from __future__ import annotations

import _signal  # as _socket: without all that the public module imports
import _socket
import sys
from _thread import allocate_lock, start_new_thread
from errno import EAGAIN, ENOBUFS, EWOULDBLOCK
from time import sleep

from . import beats as phases
from . import wire
from .monotonic import monotonic_ns
from .notebooks import service_threads
from .stack_signal import is_caught

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .beats import Beats
    from .outbox import Mail

LIBRARIES = ("tensorflow", "keras", "tf_keras", "torch", "jax")  # whose versions the hello tells
TICK = 0.05  # s: 20 records a second
GREETING = 500_000_000  # ns between two hellos: while a library is imported it changes with every module
SECOND = 1_000_000_000  # ns: between pulses, and between tries to reconnect
PATIENCE = 0.2  # s that the goodbye waits for a turn of the thread's, which takes microseconds
BUSY = frozenset((EAGAIN, EWOULDBLOCK, ENOBUFS))  # the queue is full: the supervisor is slow, not gone

_NONE, _STATE, _PULSE, _HELLO, _BYE = range(len(wire.KINDS))
_SEQUENCE, _SENT_NS, _KIND = wire.SLOT["sequence"], wire.SLOT["sent_ns"], wire.SLOT["kind"]
_CHANGES, _LONGEST, _COMMAND = wire.SLOT["changes"], wire.SLOT["longest_ns"], wire.SLOT["command"]


class Sender:
    """Sends the record of `beats` and the texts of `mail` to the socket at `address`."""

    def __init__(self, beats: Beats, mail: Mail, address: str, signal: int = 0) -> None:
        self._beats = beats
        self._mail = mail
        self._address = address
        self._socket: Optional[_socket.socket] = None
        self._changes = -1  # of the last record that went out
        self._sent = 0
        self._tried = 0
        self._looked = 0
        self._greeted = 0  # revision of the hello that went out
        self._greeted_ns = 0
        self._signal = signal
        self._handler = _signal.getsignal(signal) if signal else None
        self._finishing = False
        self._turning = allocate_lock()  # two turns at once would say a note twice and forget another
        self.closed = False

    def start(self) -> None:
        """Greet from here, so that even a process of milliseconds is known, and start the thread."""
        self.turn(monotonic_ns())
        start_new_thread(self._run, ())

    def _run(self) -> None:
        self._mail.own_thread()
        while not self.closed:
            sleep(TICK)
            try:
                with self._turning:
                    if not self.closed:
                        self.turn(monotonic_ns())
            except Exception:
                # The interpreter is being torn down around this thread, or the page is gone: silence is right.
                self.closed = True

    def turn(self, now: int) -> None:
        """Send what is due at `now` (CLOCK_MONOTONIC ns)."""
        self._look(now)
        if self._socket is None and not self._connect(now):
            return
        if self._mail.revision != self._greeted and (not self._greeted or now - self._greeted_ns > GREETING):
            revision = self._mail.revision
            if self._send(self._mail.hello()):
                self._greeted, self._greeted_ns = revision, now
        for note in self._mail.waiting():
            if not self._send(note):
                break
            self._mail.sent()
        self._record(now)

    def _look(self, now: int) -> None:
        """Once a second: is the interpreter on its way out, is the stack-dump signal still ours?"""
        threading = sys.modules.get("threading")
        if not self._finishing and getattr(threading, "_SHUTTING_DOWN", False):
            self._finishing = True
            self._beats.enter(phases.FINISHING)
        if self._beats.slots[_COMMAND]:
            self._beats.attend()
        if now - self._looked < SECOND:
            return
        self._looked = now
        self._beats.attend()
        for name in LIBRARIES:
            # By the dictionary: asking the module itself may start an import of TensorFlow's lazy kind.
            self._mail.version(name, vars(sys.modules.get(name, wire)).get("__version__"))
        self._mail.service_threads(service_threads())
        if self._mail.armed and not still_ours(self._signal, self._handler):
            self._mail.arm(False)
            self._beats.flag(wire.FLAG_STACKS_ARMED, False)
            self._mail.note("signal", "the script took the stack-dump signal for itself", {})

    def _record(self, now: int) -> None:
        self._beats.publish()
        changes = self._beats.slots[_CHANGES]
        if changes != self._changes:
            kind = _STATE
        elif now - self._sent >= SECOND:
            kind = _PULSE
        else:
            return
        if self.send_record(kind, now):
            self._changes = changes

    def send_record(self, kind: int, now: int) -> bool:
        """Stamp and send the record; whether it went out."""
        slots = self._beats.slots
        slots[_SEQUENCE] += 1
        slots[_SENT_NS] = self._sent = now
        slots[_KIND] = kind
        longest = slots[_LONGEST]
        if not self._send(bytes(slots)):
            return False
        self._beats.told(longest)
        return True

    def flush(self) -> None:
        """Send the notes that wait, from any thread: what they say is to be known before anything else happens."""
        if self.closed or not self._turning.acquire(True, PATIENCE):
            return
        try:
            self.turn(monotonic_ns())
        finally:
            self._turning.release()

    def goodbye(self) -> None:
        """Send the last record of this process and end."""
        if self.closed:
            return
        self._beats.enter(phases.FINISHING)
        # An interactive session sets it after each error and goes on.
        if "IPython" not in sys.modules and getattr(sys, "last_value", None) is not None:
            self._beats.flag(wire.FLAG_FAILED, True)
        held = self._turning.acquire(True, PATIENCE)
        self._greeted_ns = self._looked = 0  # no time left to wait for
        self.turn(monotonic_ns())
        self.send_record(_BYE, monotonic_ns())
        self.abandon()
        if held:
            self._turning.release()

    def abandon(self) -> None:
        """Fall silent for good: the interpreter ends, or this process was forked from the one that speaks here."""
        self.closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        link, self._socket = self._socket, None
        if link is not None:
            link.close()  # left to the collector it would be a ResourceWarning in the user's program

    def _connect(self, now: int) -> bool:
        if self._tried and now - self._tried < SECOND:
            return False
        self._tried = now
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        try:
            link.setblocking(False)
            link.connect(self._address)
        except OSError:
            link.close()
            return False
        self._socket = link
        self._greeted = 0
        self._changes = -1
        self.send_record(_HELLO, now)
        return True

    def _send(self, data: bytes) -> bool:
        link = self._socket
        if link is None:
            return False
        try:
            link.send(data)
        except OSError as error:
            if error.errno not in BUSY:
                self._hang_up()
            return False
        return True


def still_ours(number: int, before: object) -> bool:
    """Whether the script left the signal alone since it was registered (`before`: Python's handler then).

    Python's table shows a handler of the script's; on Linux the kernel's mask shows whether any handler is left
    at all, for a signal without one would end the process.
    """
    return _signal.getsignal(number) == before and is_caught(number) is not False
