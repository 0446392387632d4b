"""What the supervisor gets besides the records that are sent: the page that it maps, and messages.

The page is the record's memory: a file of the run mapped into this process, or private memory if there is no such file.
A process can replace its program (os.execv) by one whose probe makes a page of the same name, while the supervisor has
the old one mapped.  Reading a mapped file that was truncated raises SIGBUS, which would end the supervisor.  So the
size of a page never changes: each probe writes a new file and renames it over the name, and a mapping of the old one
stays valid.  A process without a page trains too, but the supervisor cannot watch it.

The messages are the hello and the notes, small JSON texts that the sender sends one by one.  They are encoded without
`json`, which costs milliseconds of every start; the sender's thread must not import anything.

Nothing here raises or blocks.
"""

from __future__ import annotations

import mmap
import os
import sys
from _thread import get_native_id

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def private(size: int = wire.SIZE) -> memoryview:
    """Return slots in private memory: for a process that has not trained, and for a worker."""
    return memoryview(bytearray(size)).cast("q")


def shared(path: str, size: int = wire.SIZE) -> memoryview:
    """Create the file `path` of `size` bytes, and return its slots, mapped and shared; private ones if that fails.

    The file is written, not extended by truncation: a hole on a full disk would raise SIGBUS at the first store.
    """
    draft = path + "~"  # of this process only: the name contains its number
    try:
        descriptor = os.open(
            draft,
            os.O_RDWR | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0),
            0o600,
        )
    except OSError:
        return private(size)
    try:
        os.write(descriptor, bytes(size))
        # Before 3.13 a mapping keeps a descriptor of its own, which the program can close.
        how = {"trackfd": False} if sys.version_info >= (3, 13) else {}
        # ValueError if the disk took only a part.
        slots = memoryview(mmap.mmap(descriptor, size, **how)).cast("q")
        os.rename(draft, path)
    except (OSError, ValueError):
        try:
            os.unlink(draft)
        except OSError:
            pass
        return private(size)
    else:
        return slots
    finally:
        os.close(descriptor)


def moved(old: memoryview, path: str) -> memoryview:
    """Return slots of the file `path` with the content of `old`, the magic last: a reader gets all or nothing."""
    slots = shared(path)
    slots[1:] = old[1:]
    slots[0] = old[0]
    return slots


def begin(slots: memoryview, token: int, pid: int, now: int) -> memoryview:
    """Fill a new record: all fields zero or unknown, the magic last: a reader gets all or nothing."""
    for field in ("epoch", "epochs", "batch", "batches", "iterations", "wakers"):
        slots[wire.SLOT[field]] = -1
    slots[wire.SLOT["token"]] = token
    slots[wire.SLOT["pid"]] = pid
    slots[wire.SLOT["began_ns"]] = now
    slots[wire.SLOT["phase_ns"]] = slots[wire.SLOT["progress_ns"]] = now
    slots[wire.SLOT["slices"]] = 1
    slots[wire.SLOT["loss_bits"]] = wire.float_bits(float("nan"))
    slots[wire.SLOT["magic"]] = wire.MAGIC
    return slots


try:
    from _json import encode_basestring_ascii as _quote
except ImportError:
    from json.encoder import py_encode_basestring_ascii as _quote

LIMIT = 1500  # bytes a note, so that one datagram holds it on every system
WAITING = 64  # notes; the oldest are kept, because they describe the beginning
TEXT = 400  # characters of a fact, or of a sentence of the hello
LONG = 1000  # characters of the sentence of a note


def encode(value: Any, most: int = TEXT) -> str:
    """Return JSON for the few types that a note contains; any other value by its str(), cut at `most` characters."""
    if value is True or value is False or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return "%d" % value
    if isinstance(value, dict):
        return "{%s}" % ",".join("%s:%s" % (_quote(str(key)), encode(item, most)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "[%s]" % ",".join(encode(item, most) for item in value)
    return str(_quote(str(value)[:most]))


class Outbox:
    """The messages that are to be sent.  Any thread can add; only the sender removes."""

    def __init__(self, token: int, pid: int) -> None:
        self._head = {"token": token, "pid": pid}
        self._notes: list[bytes] = []
        self._hooks: list[str] = []
        self._beyond: list[str] = []
        self._threads: list[int] = []
        self._displays: list[int] = []
        self.place = ""
        self.command = ""
        self.versions: dict[str, str] = {}
        self.armed = False
        self.revision = 1  # grows with every change of the hello

    def forked(self, pid: int) -> None:
        """Send for the forked process `pid` from now on; the unsent notes are the parent's and are removed."""
        self._head["pid"] = pid
        self._notes, self._threads, self._displays = [], [], []
        self.armed = False
        self.revision += 1

    def note(self, kind: str, text: str, facts: dict[str, object]) -> None:
        """Queue a note, shortened to what one datagram holds; it is dropped if too many are queued."""
        for most in (LONG, TEXT, TEXT // 2, TEXT // 4, TEXT // 8):
            short = {key: str(item)[: min(most, TEXT)] for key, item in facts.items()}
            data = encode({**self._head, "kind": kind, "text": text, "facts": short}, most).encode()
            if len(data) <= LIMIT:
                break
        if len(self._notes) < WAITING and len(data) <= LIMIT:
            self._notes.append(data)

    def waiting(self) -> list[bytes]:
        """Return the unsent notes, oldest first."""
        return self._notes[:]

    def sent(self) -> None:
        """Remove the oldest note."""
        del self._notes[:1]

    def hook_installed(self, hook: str) -> None:
        """Add to the hello that a hook is installed."""
        if hook not in self._hooks:
            self._hooks.append(hook)
            self.revision += 1

    def beyond(self, sentence: str) -> None:
        """Add to the hello a sentence on what cannot be done in this program."""
        if sentence not in self._beyond:
            self._beyond.append(sentence)
            self.revision += 1

    def own_thread(self) -> None:
        """Add to the hello that the calling thread is the probe's: its sleep is not the script's."""
        self._threads.append(get_native_id())
        self.revision += 1

    def service_threads(self, numbers: list[int]) -> None:
        """Add to the hello that these threads are not the script's either."""
        new = [number for number in numbers if number not in self._threads]
        if new:
            self._threads += new
            self.revision += 1

    def displays(self, numbers: list[int]) -> None:
        """Name in the hello the threads that only show progress now.

        One that draws ten times a second is often found awake, so a count of those that sleep does not know it.
        """
        if numbers != self._displays:
            self._displays = numbers
            self.revision += 1

    def version(self, name: str, version: object) -> None:
        """Add to the hello the version of a library."""
        if isinstance(version, str) and self.versions.get(name) != version:
            self.versions[name] = version
            self.revision += 1

    def arm(self, armed: bool) -> None:
        """Set in the hello whether the stack-dump signal can be sent."""
        if armed != self.armed:
            self.armed = armed
            self.revision += 1

    def hello(self) -> bytes:
        """Return the hello; sentences that do not fit are left out, the last first."""
        beyond = self._beyond[:]
        while True:
            body = {"kind": "hello", "armed": self.armed, "hooks": self._hooks, "versions": self.versions,
                    "threads": self._threads + self._displays, "place": self.place, "command": self.command,
                    "beyond": beyond}  # fmt: skip
            data = encode({**self._head, **body}).encode()
            if len(data) <= LIMIT or not beyond:
                return data
            del beyond[-1]
