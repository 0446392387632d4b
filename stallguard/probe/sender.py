"""The probe's thread that sends the record and the notes to the supervisor's socket.

At most 20 records a second if they change, otherwise a pulse once a second; the hello whenever it changed.  It never
blocks: what the socket does not accept at once is dropped (records) or sent again later (notes).  Without a supervisor
it sends nothing; it sends the hello again when the supervisor is back.

The thread is started without `threading`, so that the script's count of threads does not change.  It must not import
anything: an import in this thread could make `threading` register it as the main one.
"""

from __future__ import annotations

import _signal  # as _socket: without the imports of the public module
import _socket
import sys
from _thread import allocate_lock
from errno import EAGAIN, ENOBUFS, EWOULDBLOCK
from os import fstat
from time import sleep

from . import beats as phases
from . import libraries, native_threads, openmp, stack_dumps, wire
from .beats import monotonic_ns
from .loop_names import LoopNames
from .native_threads import service_threads
from .stack_dumps import is_caught, still_ours, write
from .wait_evidence import WaitEvidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from .beats import Beats
    from .outbox import Outbox
    from .stack_sampler import StackSampler

TICK = 0.05  # s: 20 records a second
# A loop of short steps changes the record many times in a tick, and each turn takes the interpreter's lock from it: for
# 66 us of this thread and two switches (PyTorch, two cores, Python 3.11).  So there are fewer turns then.
CALM, SHORT_STEPS = 0.15, 8  # s between two records then; changes in a tick
GREETING = 500_000_000  # ns between two hellos: while a library is imported it changes with every module
SAMPLE = 500_000_000  # ns between two looks at the frames of all threads
SECOND = 1_000_000_000  # ns between pulses, and between attempts to reconnect
PATIENCE = 0.2  # s that the last record waits for the end of the thread's turn, which takes microseconds
BUSY = frozenset((EAGAIN, EWOULDBLOCK, ENOBUFS))  # the queue is full: the supervisor is slow, but runs

_NONE, _STATE, _PULSE, _HELLO, _BYE = range(len(wire.KINDS))
_SEQUENCE, _SENT_NS, _KIND = wire.SLOT["sequence"], wire.SLOT["sent_ns"], wire.SLOT["kind"]
_CHANGES, _LONGEST, _COMMAND = wire.SLOT["changes"], wire.SLOT["longest_ns"], wire.SLOT["command"]
_STACKS, _BEATS = wire.SLOT["stacks"], wire.SLOT["beats"]


class Sender:
    """Sends the record of `beats` and the texts of `mail` to the socket at `address`."""

    def __init__(self, beats: Beats, mail: Outbox, address: str, signal: int = 0) -> None:
        self._beats = beats
        self._mail = mail
        self._address = address
        self._socket: Optional[_socket.socket] = None
        self._inode = 0  # of the socket
        self._changes = -1  # of the last record that was sent
        self._tick = TICK  # s until the next turn
        self._sent = 0
        self._tried = 0
        self._looked = 0
        self._greeted = 0  # revision of the hello that was sent
        self._greeted_ns = 0
        self._signal = signal
        self._handler = _signal.getsignal(signal) if signal else None
        self._finishing = False
        self.sampler: Optional[StackSampler] = None
        self.waits: Optional[WaitEvidence] = WaitEvidence(beats)
        self.names: Optional[LoopNames] = LoopNames(beats)
        self.unread: Optional[Callable[[], Optional[bool]]] = None  # looks if the script resumes; None: ask again
        self._named = 0
        self._runtimes: Optional[str] = None  # of OpenMP, as noted last; None: not looked yet
        self._has_peers = False  # noted that other processes take part
        self._sampled = 0
        self._stacks = beats.slots[_STACKS]  # requests for stacks that are answered
        self._turning = allocate_lock()  # two turns at once would send one note twice and drop another
        self.closed = False

    def start(self) -> None:
        """Send the hello, so that the supervisor knows even a process of milliseconds, and start the thread."""
        self.turn(monotonic_ns())
        native_threads.start(self._run)

    def _run(self) -> None:
        self._mail.own_thread()
        while not self.closed:
            sleep(self._pause())
            try:
                with self._turning:
                    if not self.closed:
                        now = monotonic_ns()
                        self._write_stacks()
                        self._sample(now)
                        self.turn(now)
            except Exception:
                # The interpreter shuts down, or the page is gone: send nothing more.
                self.closed = True

    def _pause(self) -> float:
        """Return how long to sleep, s: a tick, or until the next sample of the stacks."""
        try:
            return self._tick if self.sampler is None else self.sampler.pause(monotonic_ns(), self._tick)
        except Exception:
            self.sampler = None
            return self._tick

    def _write_stacks(self) -> None:
        """Write the stacks of all threads if the supervisor has asked for them since the last turn."""
        asked = self._beats.slots[_STACKS]
        if asked != self._stacks:
            self._stacks = asked
            self._note_surroundings()
            self.turn(monotonic_ns())  # before the stacks, with which the stall is explained
            write()

    def _note_surroundings(self) -> None:
        """Note several runtimes of OpenMP, and other processes that take part in the training.

        Once a batch has run, and again at a stall: more can be loaded, or join, later.
        """
        if not self._has_peers and libraries.have_peers():
            self._has_peers = True
            self._mail.note("peers", "", {"peers": "yes"})
        found = openmp.clash()
        if found and found != self._runtimes:
            self._runtimes = found
            self._mail.note("openmp", "", {"openmp": found})

    def _sample(self, now: int) -> None:
        """Look at the frames of all threads, each sampler twice a second; one that fails does so no more."""
        try:
            if self.sampler is not None:  # first: other threads go on meanwhile
                self.sampler.turn(now)
        except Exception:
            self.sampler = None
        try:
            if self.waits is not None and now - self._sampled >= SAMPLE:
                self._sampled = now
                self.waits.look(native_threads.frames(), now)
        except Exception:
            self.waits = None
        try:
            if self.names is not None and now - self._named >= SAMPLE:
                self._named = now
                lines = self.names.look(native_threads.frames().get(self._beats.training_thread))
                if lines:
                    self._mail.note("loop", "", {"lines": lines})
                self.names = self.names if lines is None else None
        except Exception:
            self.names = None
        try:
            if self.unread is not None and self.unread() is not None:
                self.unread = None
        except Exception:
            self.unread = None

    def turn(self, now: int) -> None:
        """Send what is due at `now` (CLOCK_MONOTONIC ns)."""
        self._look(now)
        if self._socket is None and not self._connect(now):
            self._beats.slots[_SENT_NS] = now  # the page shows that this program runs
            return
        if self._mail.revision != self._greeted and (not self._greeted or now - self._greeted_ns > GREETING):
            revision = self._mail.revision
            if self._send(self._mail.hello()):
                self._greeted, self._greeted_ns = revision, now
        for note in self._mail.waiting():
            if not self._send(note):
                break
            self._mail.sent()
        self._beats.publish()
        self._beats.published()
        changes = self._beats.slots[_CHANGES]
        self._tick = CALM if self._changes >= 0 and changes - self._changes >= SHORT_STEPS else TICK
        if changes != self._changes:
            kind = _STATE
        elif now - self._sent >= SECOND:
            kind = _PULSE
        else:
            return
        if self.send_record(kind, now):
            self._changes = changes

    def _look(self, now: int) -> None:
        """Check for a command and the interpreter's end; once a second also versions, threads and signal handler."""
        threading = sys.modules.get("threading")
        if not self._finishing and getattr(threading, "_SHUTTING_DOWN", False):
            self._finishing = True
            self._beats.enter(phases.FINISHING)
        if self._beats.slots[_COMMAND]:
            self._beats.request_attention()
        if self._mail.armed and not still_ours(self._signal, self._handler):
            self._disarm()
        if now - self._looked < SECOND:
            return
        self._looked = now
        self._beats.request_attention()
        for library in libraries.known:
            if library.trains:
                self._mail.version(library.name, libraries.version(library.name))
        self._mail.service_threads(service_threads())
        self._mail.displays([] if self.waits is None else sorted(self.waits.displays.values()))
        if self._runtimes is None and self._beats.slots[_BEATS]:
            self._runtimes = ""
            self._note_surroundings()
        stack_dumps.look()
        if self._mail.armed and is_caught(self._signal) is False:
            self._disarm()

    def _disarm(self) -> None:
        """Report that the stack-dump signal must not be sent: the script handles it, or nothing does."""
        self._mail.arm(False)
        self._beats.flag(wire.FLAG_STACKS_ARMED, False)
        self._mail.note("signal", "the script replaced the handler of the stack-dump signal", {})

    def send_record(self, kind: int, now: int) -> bool:
        """Stamp and send the record; return whether it was sent."""
        slots = self._beats.slots
        slots[_SEQUENCE] += 1
        slots[_SENT_NS] = self._sent = now
        slots[_KIND] = kind
        longest = slots[_LONGEST]
        if not self._send(bytes(slots)):
            return False
        self._beats.reported(longest)
        return True

    def flush(self) -> None:
        """Send the queued notes now, from any thread: they must arrive before the next event."""
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
        # An interactive session sets it after each error, and continues.
        if "IPython" not in sys.modules and getattr(sys, "last_value", None) is not None:
            self._beats.flag(wire.FLAG_FAILED, True)
        held = self._turning.acquire(True, PATIENCE)
        self._greeted_ns = self._looked = 0  # do now what is not due yet
        self.turn(monotonic_ns())
        if self.sampler is not None:
            self.sampler.finish()
        self.send_record(_BYE, monotonic_ns())
        self.abandon()
        if held:
            self._turning.release()

    def abandon(self) -> None:
        """Send nothing more: the interpreter ends, or this process was forked from the one that sends here."""
        self.closed = True
        if self.sampler is not None:
            self.sampler.restore()
        self._hang_up()

    def _hang_up(self) -> None:
        link, self._socket = self._socket, None
        if link is None:
            return
        if self._is_open(link):
            link.close()  # the garbage collector would raise a ResourceWarning in the user's program
        else:
            link.detach()

    def _is_open(self, link: _socket.socket) -> bool:
        """Return whether the socket's descriptor is still its own.

        A program can close all descriptors that it does not know, as daemons do: the number then belongs to the next
        file that it opens, which must be neither written nor closed.
        """
        try:
            return fstat(link.fileno()).st_ino == self._inode
        except OSError:
            return False

    def _connect(self, now: int) -> bool:
        if self._tried and now - self._tried < SECOND:
            return False
        self._tried = now
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        try:
            link.setblocking(False)
            link.connect(self._address)
            self._inode = fstat(link.fileno()).st_ino
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
        if not self._is_open(link):
            self._hang_up()
            return False
        try:
            link.send(data)
        except OSError as error:
            if error.errno not in BUSY:
                self._hang_up()
            return False
        return True
