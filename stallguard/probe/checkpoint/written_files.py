"""Files that callbacks write line by line: a resumed training continues them after the lines of the checkpoint.

After a kill, a log that is appended to has lines of batches that will be trained again; a log that the script opens for
writing has lost all lines.  So a save stores the length of each such file and a copy of it (only what was added since
the previous save is copied), and a resumed fit restores that content.  What it cuts off is kept beside the copies.

The length of such a file when a fit first opened it is recorded at once: a fit that starts over cuts it to that length.

Another user can have made a checkpoint, so it names no file that is written: a handle of a callback says which file is
meant, and any other file gets its content back at the moment at which the script itself opens it for appending.

Such files are those that are opened for appending while a fit runs, those of an open handle that a callback refers to,
those of handlers of `logging`, and those of Keras' CSVLogger.  A file that is always rewritten as a whole needs no
handling.
"""

from __future__ import annotations

import builtins
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from .. import own_frames, process_key
from . import object_kinds
from .generations import no_link

if TYPE_CHECKING:
    from .object_walk import Walk

TAIL = 4096  # bytes before the end that are compared to decide whether a file has only grown
FRAMES = 8  # between the script's code and open(): pathlib, a logger
CSV = "CSVLogger"
DIGITS = 20  # of a size, at most
CUT, BASE = "cut-off", "base"


class WrittenFiles:
    """The files of one fit.  `folder`: of the copies."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._root = os.environ.get(process_key.PROJECT, "")  # names of files below it are relative to it
        self.appended: dict[str, int] = {}  # opened for appending since the fit began: size before
        self._copies: dict[str, str] = {}  # name of a file: its copy
        self._due: dict[str, bytes] = {}  # content that a file has to have when the script opens it
        self._cuts: dict[str, int] = {}  # length that a file has to have then

    # ---- registering ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Register files that are opened for appending from now on."""
        if isinstance(builtins.open, Opener):
            builtins.open.files = self
            return
        opener: Any = Opener(builtins.open, self)
        builtins.open = io.open = opener

    def end(self) -> None:
        """Stop registering files."""
        opener = builtins.open
        if isinstance(opener, Opener):
            builtins.open = io.open = opener.original

    def note(self, file: Any) -> None:
        """Register a file that was opened for appending, if the script's code opened it."""
        if not isinstance(file, (str, bytes, os.PathLike)):
            return
        frame: Any = sys._getframe(2)
        for _ in range(FRAMES):
            if frame is None or object_kinds.is_users(frame.f_code.co_filename):
                break
            if os.path.dirname(frame.f_code.co_filename) == os.path.dirname(__file__):
                return  # opened by the probe
            frame = frame.f_back
        else:
            return
        path = os.path.abspath(os.fsdecode(file))
        if frame is not None:
            self._bring_back(path)
        if frame is not None and path not in self.appended:
            self.appended[path] = os.path.getsize(path) if os.path.isfile(path) else 0
            os.makedirs(self.folder, exist_ok=True)
            base = os.path.join(self.folder, BASE)
            with open(base, "a", encoding="utf-8", errors="surrogateescape", opener=no_link) as known:
                known.write("%d %s\n" % (self.appended[path], self._portable(path)))

    def rewind(self) -> None:
        """Cut off what an earlier attempt of this fit appended, because the fit starts over; raises OSError."""
        base = os.path.join(self.folder, BASE)
        if not os.path.exists(base):
            return
        with open(base, encoding="utf-8", errors="surrogateescape") as known:
            lines = [line.rstrip("\n").partition(" ") for line in known]
        self._due.clear()
        # The first record of a file holds.
        self._cuts = {
            process_key.native(path, self._root): int(size)
            for size, _, path in reversed(lines)
            if size.isdecimal() and len(size) <= DIGITS
        }

    def _bring_back(self, path: str) -> None:
        """Give a file that the script opens the content of the checkpoint; raises OSError."""
        content, size = self._due.pop(path, None), self._cuts.pop(path, None)
        if content is not None:
            self._set(path, content)
            self.appended.setdefault(path, len(content))
        elif size is not None and os.path.isfile(path) and os.path.getsize(path) > size:
            self._cut(path, size)

    # ---- saving and restoring -------------------------------------------------------------------------------

    def keep(self, state: Walk, callbacks: list[Any]) -> list[list[Any]]:
        """Return [name, copy, size] of each file as it is now; raises OSError."""
        found: list[list[Any]] = [
            [self._portable(path), self._copies[path], len(content)] for path, content in self._due.items()
        ]
        for name, path, handle in self._written(state, callbacks):
            if handle is not None:
                handle.flush()
            if os.path.isfile(path):
                size = os.path.getsize(path)
                found.append([self._portable(name), self._copied(name, path, size), size])
        return found

    def restore(self, kept: list[list[Any]], state: Walk, callbacks: list[Any]) -> int:
        """Restore the content of each kept file, and move its handle to the end; raises OSError.

        A file that the script has not opened in this process waits for that.  Return how many files had a different
        content.
        """
        there = {name: (path, handle) for name, path, handle in self._written(state, callbacks)}
        changed = 0
        for known, copy, size in kept:
            name = process_key.native(known, self._root)
            path, handle = there.get(name, (name, None))
            if not os.path.isabs(path) or not copy.isdecimal():
                continue  # a handle that does not exist in this process
            if handle is not None:
                handle.flush()
            with open(os.path.join(self.folder, copy), "rb") as file:
                content = file.read(size)
            self._copies[name] = copy
            if name not in there:
                self._due[path] = content
                continue
            changed += self._set(path, content)
            if name == path:
                self.appended.setdefault(path, size)
            if handle is None:
                continue
            owner = next((one for one in callbacks if getattr(one, "csv_file", None) is handle), None)
            if hasattr(handle, "seekable") and not hasattr(handle, "_FileIO__name"):
                handle.seek(0, os.SEEK_END)
            elif owner is not None:  # TensorFlow's file object in Keras 2 cannot seek: another one is opened
                handle.close()
                owner.csv_file = type(handle)(path, "a")
            if owner is not None and os.path.getsize(path):
                owner.append_header = False
        return changed

    def _portable(self, path: str) -> str:
        return process_key.portable(path, self._root)

    def _written(self, state: Walk, callbacks: list[Any]) -> list[tuple[str, str, Any]]:
        """Return (name, path, handle or None) of the files written line by line; a handle's name is its slot."""
        found: list[tuple[str, str, Any]] = [(path, path, None) for path in sorted(self.appended)]
        for index, callback in enumerate(callbacks):
            if type(callback).__name__ == CSV:
                handle = getattr(callback, "csv_file", None)
                closed = handle is None or getattr(handle, "closed", False)
                path = os.path.abspath(os.fsdecode(callback.filename))
                found.append(("csv %d" % index, path, None if closed else handle))
        known = {path for _, path, _ in found}
        for slot, handle in [*state.files, *_of_logging()]:
            name = getattr(handle, "name", None)
            if isinstance(name, str) and not handle.closed and handle.writable() and os.path.isfile(name):
                path = os.path.abspath(name)
                if path not in known and not _is_standard(handle):
                    known.add(path)
                    found.append((slot, path, handle))
        return found

    def _copied(self, name: str, path: str, size: int) -> str:
        """Update the copy of a file; return the copy's name."""
        copy = self._copies.get(name)
        os.makedirs(self.folder, exist_ok=True)
        with open(path, "rb") as source:
            before = self._grown(copy, source, size) if copy is not None else -1
            if before < 0:
                number = 1
                while os.path.lexists(os.path.join(self.folder, "%d" % number)):
                    number += 1
                copy, before = "%d" % number, 0
                self._copies[name] = copy
            source.seek(before)
            with open(os.path.join(self.folder, str(copy)), "ab", opener=no_link) as target:
                target.write(source.read(size - before))
        return str(copy)

    def _grown(self, copy: str, source: Any, size: int) -> int:
        """Return the length of a file's copy, -1 if the file has changed in any way other than growing."""
        path = os.path.join(self.folder, copy)
        length = os.path.getsize(path)
        if length > size:
            return -1
        begin = max(0, length - TAIL)
        source.seek(begin)
        with open(path, "rb") as file:
            file.seek(begin)
            return length if file.read() == source.read(length - begin) else -1

    def _set(self, path: str, content: bytes) -> bool:
        """Set the content of a file, and keep what it had beyond it.  Return whether it was different."""
        now = b""
        if os.path.exists(path):
            with open(path, "rb") as file:
                now = file.read()
        if now == content:
            return False
        if now[: len(content)] == content:
            self._cut(path, len(content))
        else:
            with open(path, "r+b" if os.path.exists(path) else "wb") as file:
                file.write(content)
                file.truncate()
        return True

    def _cut(self, path: str, size: int) -> None:
        """Shorten a file, and keep the end that is cut off."""
        with open(path, "rb") as file:
            file.seek(size)
            end = file.read()
        with open(os.path.join(self.folder, CUT), "ab", opener=no_link) as file:
            file.write(("--- of %s\n" % path).encode("utf-8", "replace") + end)
        os.truncate(path, size)


class Opener:
    """Replaces `open` while a fit runs.  No function: as an attribute of a class it must not become a method."""

    def __init__(self, original: Any, files: WrittenFiles) -> None:
        self.original = original
        self.files = files

    def __call__(self, file: Any, mode: Any = "r", *args: Any, **named: Any) -> Any:
        """Open a file as `open` does, and register one that is opened for appending."""
        if isinstance(mode, str) and "a" in mode:
            try:
                self.files.note(file)
            except Exception:  # the script gets its file in any case
                pass
        try:
            return self.original(file, mode, *args, **named)
        except BaseException as error:
            own_frames.remove(error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


def _of_logging() -> list[tuple[str, Any]]:
    """Return (name, open file) of the handlers of all loggers.

    The name has no folder, because a project can move; of files with the same name it has their number.
    """
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


def _is_standard(handle: Any) -> bool:
    try:
        return int(handle.fileno()) in (0, 1, 2)
    except (OSError, ValueError):
        return True
