"""Sees by an audit hook which files the process opens for writing, from its start on.

The hook is called for every audit event of the process and cannot be removed.  An event of no other interest costs
0.2 us, of which most is Python's own; a step of TensorFlow or JAX has less than one, a step of torch about 50.  An
opening for reading costs 0.4 us.  What C libraries open has no event: descriptors.py finds those that stay open, and
h5py is wrapped.

Of an opening before a fit only that is kept which its descriptor does not show later: that it changes the file in
place, that it is a database, that there is no buffer above it, that the script appended to it and what length it had.
Texts and lengths alone are kept, of a limited number.
"""

from __future__ import annotations

import os
import sys

from .. import libraries, settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context


IN_PLACE, SQLITE, HDF5 = "changed in place", "an SQLite database", "an HDF5 file"
REREAD, COMPRESSED = "read and written anew", "compressed"
_BEGINNINGS = {
    b"SQLite format 3\0": SQLITE,
    b"\x89HDF\r\n\x1a\n": HDF5,
    b"\x1f\x8b": COMPRESSED,
    b"BZh": COMPRESSED,
    b"\xfd7zXZ": COMPRESSED,
    b"PK\x03\x04": "an archive",
}
WRITES = os.O_WRONLY | os.O_RDWR
NEW = os.O_TRUNC | os.O_EXCL
_UNCHANGED = ("mode=ro", "mode=memory", "immutable=1")  # in the address of a database
READS = 64  # files that were read last, of which one can be written anew
MOST = 1000  # files of each kind that are known
_GENERATED = ("__autograph_generated_file", "__pycache__")  # code that TensorFlow or Python itself writes
_HERE = os.path.join(os.path.dirname(__file__), "")


class FileEvents:
    """What is known of one process."""

    def __init__(self) -> None:
        self.listener: Any = None  # WrittenFiles of the fit that runs
        self.checkpoints: Any = None  # ScriptCheckpoints of the process
        self.changed: dict[str, str] = {}  # path: how, of what is open for changes in place
        self.unbuffered: dict[str, None] = {}  # opened by os.open
        self.appended: dict[str, int] = {}  # opened for appending before a fit: its length before that
        self._read: dict[Any, None] = {}
        self._listens = False

    def listen(self) -> None:
        """Install the hook, once."""
        if not self._listens:
            self._listens = True
            sys.addaudithook(_hook)

    def handle(self, event: str, args: Any) -> None:
        """Handle an audit event of interest; raises what an event of another form leads to."""
        if event == "open":
            path, mode, flags = args
            if self.checkpoints is not None and not flags & WRITES:
                self.checkpoints.opened(os.fsdecode(path))
            if flags & WRITES:
                self._open(path, mode is None, flags)
            elif self.listener is not None:
                # One that is written anew after this has content that depends on its earlier one.
                self._read[path] = None
                if len(self._read) > READS:
                    del self._read[next(iter(self._read))]
        elif event == "sqlite3.connect":
            name, _, query = os.fsdecode(args[0]).partition("?")
            is_file = name and not name.startswith((":memory:", "file::memory:"))
            if is_file and not any(one in query for one in _UNCHANGED):
                self.changes(name.removeprefix("file:"), SQLITE)
        else:
            if self.checkpoints is not None:
                self.checkpoints.renamed(os.fsdecode(args[0]), os.fsdecode(args[1]))
            if os.fspath(args[1]) in self._read:
                self.changes(os.fsdecode(args[1]), REREAD)

    def _open(self, file: Any, raw: bool, flags: int) -> None:
        path = os.path.abspath(os.fsdecode(file))
        if not _is_asked_for(path):
            return
        if raw and len(self.unbuffered) < MOST:
            self.unbuffered[path] = None
        if self.listener is None:
            if not flags & os.O_APPEND and (flags & os.O_RDWR or not flags & NEW):
                self.changes(path, IN_PLACE)
            elif flags & os.O_APPEND and path not in self.appended and len(self.appended) < MOST and is_scripts():
                self.appended[path] = os.path.getsize(path) if os.path.isfile(path) else 0
        elif is_scripts():
            if not flags & (os.O_APPEND | NEW):
                self.listener.changes(path, IN_PLACE)
            else:
                self.listener.opened(path, flags)
            if flags & NEW and file in self._read:
                self.listener.changes(path, REREAD)

    def changes(self, file: str, how: str) -> None:
        """Note that the script is about to open a file that it changes in a way that cannot be undone."""
        path = os.path.abspath(file)
        if not _is_asked_for(path) or not is_scripts():
            return
        if len(self.changed) < MOST:
            self.changed[path] = how
        if self.listener is not None:
            self.listener.changes(path, how)


events = FileEvents()


def _hook(event: str, args: Any) -> None:
    """Pass on an event of interest.  A function, because a bound method costs Python 1 us more in each event."""
    if event == "open" or event == "sqlite3.connect" or event == "os.rename":  # noqa: PLR1714  a set costs a hash
        try:
            events.handle(event, args)
        except Exception:  # the script goes on in any case
            pass


def by_beginning(content: bytes) -> str:
    """Return how a file of this beginning changes, "" if by what is written at its end."""
    return next((how for beginning, how in _BEGINNINGS.items() if content.startswith(beginning)), "")


def _is_asked_for(path: str) -> bool:
    """Return False for a path that will not open, one that Python or TensorFlow writes by itself, or the probe's."""
    own = settings.of(os.environ).pages
    if "\0" in path or any(part in path for part in _GENERATED):
        return False
    return not own or not path.startswith(own + os.sep)


def is_scripts() -> bool:
    """Return whether the script's code asked for this, by any library, and not a training library for itself.

    Below a frame of the checkpoints lies a fit: what Keras' own callbacks open has no code of the script before that.
    """
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(__file__):
        frame = frame.f_back
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_HERE):
            return False
        if not libraries.is_librarys(file):
            return not file.startswith("<string")  # what dataclasses generate
        frame = frame.f_back
    return False


def begin(context: Context) -> Context:
    """Begin to listen."""
    from .script_checkpoints import ScriptCheckpoints

    context.script_checkpoints = events.checkpoints = ScriptCheckpoints(context)
    if context.resuming:
        events.checkpoints.records()
    events.listen()
    return context


def patch_files(context: Context, module: Any) -> None:
    """Wrap the class of HDF5 files: h5py opens files by itself; `module`: h5py._hl.files."""

    def wrapped(original: Any) -> Any:
        def __init__(self: Any, name: Any, mode: Any = "r", *args: Any, **named: Any) -> None:  # noqa: N807
            if mode in ("a", "r+") and isinstance(name, (str, bytes, os.PathLike)):
                try:
                    events.changes(os.fsdecode(name), HDF5)
                except Exception:  # the script gets its file in any case
                    pass
            original(self, name, mode, *args, **named)

        return __init__

    context.wrap(getattr(module, "File", None), "__init__", wrapped)
