"""Which files the process has open for writing, however they were opened, and Python's objects that write to them."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import io
import os
import stat
import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDERS = ("/proc/self/fd", "/dev/fd")  # of Linux; of macOS
_GETPATH, _PATH_MOST = 50, 1024  # F_GETPATH and MAXPATHLEN of macOS
_UNKNOWN = object()
# What these write is all that they hold; a GzipFile, for instance, has more state.
_PLAIN = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.FileIO)


class Descriptor(NamedTuple):
    """An open regular file.  `key`: which one it is, under any name."""

    number: int
    path: str
    flags: int
    key: tuple[int, int]

    @property
    def appends(self) -> bool:
        """Whether each write goes to the end."""
        return bool(self.flags & os.O_APPEND)

    @property
    def is_read(self) -> bool:
        """Whether it can be read as well."""
        return self.flags & os.O_ACCMODE == os.O_RDWR


def for_writing() -> list[Descriptor]:
    """Return the files that are open for writing and have a name, without the standard streams; about 2 us for each."""
    folder = next((one for one in _FOLDERS if os.path.isdir(one)), "")
    numbers = sorted(int(name) for name in os.listdir(folder) if name.isdecimal()) if folder else []
    standard, found = set(), []
    for number in numbers:
        try:
            now = os.fstat(number)
            key, flags = (now.st_dev, now.st_ino), fcntl.fcntl(number, fcntl.F_GETFL)
            if number in (0, 1, 2):
                standard.add(key)
            is_file = stat.S_ISREG(now.st_mode) and now.st_nlink and key not in standard
            if is_file and flags & os.O_ACCMODE != os.O_RDONLY:
                found.append(Descriptor(number, _path(number), flags, key))
        except OSError:
            continue  # closed by now
    return found


def beginning(one: Descriptor, size: int) -> bytes:
    """Return the first bytes of a file that can be read, without another opening: its end would free locks of POSIX."""
    try:
        return os.pread(one.number, size, 0) if one.is_read else b""
    except OSError:
        return b""


@contextlib.contextmanager
def appending(handle: Any) -> Iterator[None]:
    """Write each line at the end meanwhile.  `handle`: of a file whose length is changed now, or its number.

    Else a line of a thread of the input pipeline could be written beyond the end, after null bytes.
    """
    try:
        number = handle if isinstance(handle, int) else int(handle.fileno())
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_APPEND)
    except (AttributeError, OSError, TypeError, ValueError):  # no descriptor of Python
        yield
        return
    try:
        yield
    finally:
        fcntl.fcntl(number, fcntl.F_SETFL, flags)


def is_plain(handle: Any) -> bool:
    """Return whether an open file of Python has no state but its content and its position."""
    buffer = getattr(handle, "buffer", None)
    return type(handle) in _PLAIN and (buffer is None or type(buffer) in _PLAIN)


_handles: dict[tuple[int, tuple[int, int]], Any] = {}  # a weak reference of each descriptor's object, or None


def handles_of(wanted: list[Descriptor]) -> dict[int, Any]:
    """Return {number: Python's object} of those that have one, for each the outermost; without one are raw descriptors.

    Each is looked for once, which takes about 50 ms in a process of TensorFlow.
    """
    if any(_is_unknown(one) for one in wanted):
        found: dict[int, Any] = {}
        numbers = {one.number for one in wanted}
        for handle in gc.get_objects():
            if type(handle) in _PLAIN:
                try:
                    number = handle.fileno()
                except (OSError, ValueError):
                    continue
                if number in numbers and _rank(handle) <= _rank(found.get(number)):
                    found[number] = handle
        for one in wanted:
            handle = found.get(one.number)
            _handles[one.number, one.key] = None if handle is None else weakref.ref(handle)
    known = {one.number: _handles[one.number, one.key] for one in wanted}
    alive = {number: _open(reference) for number, reference in known.items() if reference is not None}
    return {number: handle for number, handle in alive.items() if handle is not None}


def _is_unknown(one: Descriptor) -> bool:
    """Return whether an object is to be looked for: also if the file was closed and has been opened again."""
    known = _handles.get((one.number, one.key), _UNKNOWN)
    return known is _UNKNOWN or (known is not None and _open(known) is None)


def is_anothers(path: str, size: int, held: list[Descriptor]) -> bool:
    """Return whether another process wrote last: no descriptor that only appends (and has written) is at the end."""
    now = os.stat(path)
    mine = [one for one in held if one.key == (now.st_dev, now.st_ino)]
    positions = [os.lseek(one.number, 0, os.SEEK_CUR) for one in mine]
    only_append = all(one.appends and not one.is_read for one in mine)
    return bool(mine) and only_append and all(0 < position < size for position in positions)


def is_standard(handle: Any) -> bool:
    """Return whether an open file is a standard stream, or has no descriptor."""
    try:
        return int(handle.fileno()) in (0, 1, 2)
    except (OSError, ValueError):
        return True


def of_logging() -> list[tuple[str, Any]]:
    """Return (name, open file) of all loggers' handlers; without folders, because a project can move."""
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return []
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    handlers = [handler for one in loggers for handler in getattr(one, "handlers", ())]
    streams = [getattr(handler, "stream", None) for handler in handlers]
    files: list[Any] = [one for one in streams if isinstance(one, io.IOBase)]
    found: dict[str, Any] = {}
    for one in {id(one): one for one in files}.values():
        path = getattr(one, "name", None)
        if isinstance(path, str):
            name = "log " + os.path.basename(path)
            found[name if name not in found else "%s %d" % (name, len(found))] = one
    return list(found.items())


def _open(reference: Any) -> Any:
    """Return the object that a weak reference leads to; None if it is gone, or closed while the script keeps it."""
    handle = reference()
    return None if handle is None or handle.closed else handle


def _rank(handle: Any) -> int:
    return len(_PLAIN) if handle is None else _PLAIN.index(type(handle))


def _path(number: int) -> str:
    if sys.platform == "darwin":
        found = fcntl.fcntl(number, _GETPATH, b"\0" * _PATH_MOST)
        return os.fsdecode(found.partition(b"\0")[0])
    return os.readlink("/proc/self/fd/%d" % number)
