"""Files that the script writes while it trains: a resumed training continues them after the lines of the checkpoint.

After a kill, a log that is appended to has lines of batches that will be trained again; a log that the script opens for
writing has lost all lines.  So a save stores the length of each such file and a copy of it (only what was added since
the previous save is copied), and a resumed fit restores that content.  What it cuts off is kept beside the copies.

The length of such a file when a fit first opened it, or when the fit began with it open, is recorded at once: a fit
that starts over cuts it to that length, and so does a fit that resumes from a checkpoint that is older than an opening.
For one that is open for appending that is the moment of the call of `fit`: Keras draws a first batch from a generator
before the fit begins, and the pipeline can have written to the file, and read it, by then.

Another user can have made a checkpoint, so it names no file that is written: a handle of a callback says which file is
meant, and any other file gets its content back at the moment at which the script itself opens it for appending.

Such files are those that the script opens for appending while a fit runs (file_events.py), those of an open handle of a
callback, those of handlers of `logging` and of Keras' CSVLogger, and every other file that is open for writing alone
(descriptors.py).  A file that is always rewritten as a whole needs no handling.

A file is left as it is, and that is said, if it is changed in any other way (a database, in place, read and written
anew), if it is compressed, or if another process writes to it too: that shows in a growth that is not this process'
own, between a save and the next opening, or beyond the position of a descriptor that appends.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Any

from .. import process_key, settings
from . import descriptors, file_events
from .generations import BASE, CUT, no_link

if TYPE_CHECKING:
    from .descriptors import Descriptor
    from .object_walk import Walk

TAIL = 4096  # bytes before the end that are compared to decide whether a file has only grown
CSV, CSV_NAME = "CSVLogger", "csv "
DIGITS = 20  # of a size, at most
NOT_ALONE = "shared"
END = ":"  # between a length and a digest of the bytes before it
HELD = "+"  # before the length of a file that was open as the fit began
CLOSED = "~"  # before that of one that the script had appended to by then, and closed
SHARED = "another process writes to it too"


class WrittenFiles:
    """The files of one fit.  `folder`: of the copies."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._root = settings.of(os.environ).project  # names of files below it are relative to it
        self.appended: dict[str, int] = {}  # opened for appending since the fit began: size before
        self._copies: dict[str, str] = {}  # name of a file: its copy
        self._due: dict[str, bytes] = {}  # content that a file has to have when the script opens it
        self._cuts: dict[str, int] = {}  # length that a file has to have then
        # Restored files: copy, length, and length as the iterator of the data opened.
        self._kept: dict[str, tuple[str, int, int]] = {}
        self._opened: dict[str, int] = {}  # length of each file as the iterator opened
        # While batches are drawn again: the length that a file is to have now, the one that it was set to last, and
        # what was written to it from the resume until then.
        self._lengths: dict[str, int] = {}
        self._filled: dict[str, int] = {}
        self._since: dict[str, bytes] = {}
        # As the loop first began in this process: a length, and what a file had beyond it; the open handles.
        self._at_loop: dict[str, tuple[int, bytes]] | None = None
        self._handles: list[Any] = []
        self._ends: dict[tuple[str, int], str] = {}  # of a path and a recorded length: the bytes before it, as a digest
        self._before: dict[str, int] = {}  # recorded length of each file before this fit
        self._closed: dict[str, int] = {}  # of those that the script had appended to before, and closed
        self._restored: set[str] = set()  # files that got the content of a checkpoint in this process
        self._left: dict[str, int] = {}  # size at the save before, of files that were not open then
        # Path: how it changes, and its state when that was known.
        self._changing: dict[str, tuple[str, Any]] = {}
        self._process = os.getpid()

    # ---- registering ----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Register what the script opens for writing from now on; raises OSError after that."""
        file_events.events.listen()
        file_events.events.listener = self
        self._before = self._recorded("", HELD)
        # One that is written anew too: a script can append to it once it is there.
        for path in self._open(appending=False):
            if path not in self._before:
                self._write_length(HELD, os.path.getsize(path), path)
        self._closed = self._recorded(CLOSED)
        for path in file_events.events.appended:
            if path not in self._closed and os.path.isfile(path):
                self._write_length(CLOSED, os.path.getsize(path), path)

    def end(self) -> None:
        """Stop registering files."""
        file_events.events.listener = None

    def opened(self, path: str, flags: int) -> None:
        """Register a file that the script is about to open for appending or anew; raises OSError."""
        if os.getpid() != self._process:
            return
        if not flags & os.O_APPEND:
            self._due.pop(path, None)  # it begins with nothing
            return
        size = os.path.getsize(path) if os.path.isfile(path) else 0
        if self._left.pop(path, size) != size:
            self._share(path)
        self._bring_back(path)
        if path not in self.appended:
            self.appended[path] = size if not os.path.isfile(path) else os.path.getsize(path)
            self._opened.setdefault(path, self.appended[path])
            self._write_length("", self.appended[path], path)

    def changes(self, path: str, how: str) -> None:
        """Register a file that is changed in a way that a resume does not undo."""
        if os.getpid() == self._process:
            self._changing.setdefault(path, (how, _state_of(path)))

    def _share(self, path: str) -> None:
        self._changing[path] = (SHARED, None)
        self._due.pop(path, None)
        self._write_down(NOT_ALONE, path)

    def _is_shared(self, path: str) -> bool:
        return self._changing.get(path, ("",))[0] == SHARED

    def _write_length(self, kind: str, size: int, path: str) -> None:
        self._write_down("%s%d%s%s" % (kind, size, END, _end(path, size)), path)

    def _write_down(self, fact: str, path: str) -> None:
        """Keep a fact on a file for the next attempt at once: its length before this fit, or that it is shared."""
        os.makedirs(self.folder, exist_ok=True)
        base = os.path.join(self.folder, BASE)
        with open(base, "a", encoding="utf-8", errors="surrogateescape", opener=no_link) as known:
            known.write("%s %s\n" % (fact, self._portable(path)))

    def rewind(self) -> None:
        """Cut off what an earlier attempt of this fit, which starts over, appended; its checkpoints are gone then."""
        for known in (self._due, self._copies, self._left):
            known.clear()
        self.cut_to_beginning()

    def cut_to_beginning(self) -> None:
        """Cut the files to what they had when the fit was first called: open ones now, others as they are opened.

        The pipeline reads them as Keras draws a first batch.  Raises OSError.
        """
        self._lengths = {}
        self._cuts = {path: size for path, size in self._before.items() if not self._is_shared(path)}
        # Those that have nothing more but what this attempt appended before the fit, if the fit appends to them too.
        self._cuts.update(self._closed.items() & file_events.events.appended.items())
        for path in self._open(appending=True):
            size = self._length_due(path)
            if size is not None:
                self._cut(path, size)

    def loop_begins(self) -> None:
        """Note what the files have as the loop begins; restore it if the same fit starts over.  Raises OSError.

        Keras on torch and JAX draws a batch before that, once, to build the model: the pipeline can have written then.
        """
        opened = self._open(appending=False)
        self._handles = [handle for handle in opened.values() if hasattr(handle, "flush")]
        paths = {path for path in (*opened, *self.appended) if os.path.isfile(path)}
        if self._at_loop is None:
            self._at_loop = {}
            for path in paths:
                size = os.path.getsize(path)
                with open(path, "rb") as file:
                    begin = file.seek(min(self._before.get(path, size), size))
                    self._at_loop[path] = begin, file.read(size - begin)
            return
        for path in paths & set(self._at_loop):
            size, rest = self._at_loop[path]
            self._cuts.pop(path, None)
            if os.path.getsize(path) < size:  # the script has written it anew
                continue
            handle = opened.get(path)
            self._shorten(path, size, handle, [])
            with descriptors.appending(handle):
                with open(path, "ab") as file:
                    file.write(rest)
                self._to_end(handle, path, [])

    def _open(self, *, appending: bool) -> dict[str, Any]:
        """Return the handle, or the number, of each file that is written line by line; the buffers are empty then."""
        held = [one for one in descriptors.for_writing() if one.appends or not appending]
        found = [one for one in self._of_descriptors(set(), held) if not self._is_shared(one[1])]
        for _, _, handle in found:
            if hasattr(handle, "flush"):
                handle.flush()
        return {path: handle for _, path, handle in found}

    def sizes(self) -> dict[str, int]:
        """Return the length of each file that the script writes line by line; the buffers are empty then."""
        paths = {*self._open(appending=False), *self.appended}
        return {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}

    def _recorded(self, *kinds: str) -> dict[str, int]:
        """Return the length that each file had before this fit; `kinds`: HELD, CLOSED, "" (opened in it)."""
        base, found = os.path.join(self.folder, BASE), dict[str, int]()
        if os.path.exists(base):
            with open(base, encoding="utf-8", errors="surrogateescape") as known:
                lines = [line.rstrip("\n").partition(" ") for line in known]
            for fact, _, name in lines:
                path = process_key.native(name, self._root)
                if fact == NOT_ALONE:
                    self._changing[path] = (SHARED, None)
                    continue
                length, _, end = fact.partition(END)
                size = length.lstrip(HELD + CLOSED)
                if length.removesuffix(size) in kinds and size.isdecimal() and len(size) <= DIGITS:
                    found.setdefault(path, int(size))  # the first record of a file holds
                    self._ends.setdefault((path, int(size)), end)
        return {path: size for path, size in found.items() if not self._is_shared(path)}

    def _length_due(self, path: str) -> int | None:
        """Return the length to which a file is to be cut, and forget it.  Raises OSError.

        None for no file of an earlier attempt, also if the script has written it anew since.
        """
        size = self._cuts.pop(path, None)
        return size if size is not None and self._ends.get((path, size)) == _end(path, size) else None

    def _bring_back(self, path: str) -> None:
        """Give a file that the script opens the content of the checkpoint; raises OSError."""
        content, size = self._due.pop(path, None), self._length_due(path)
        if self._is_shared(path):
            return
        if content is not None:
            self._filled[path] = self._lengths.get(path, len(content))
            self._set(path, content[: self._filled[path]])
            self._restored.add(path)
            self.appended.setdefault(path, len(content))
        elif size is not None and os.path.isfile(path):
            self._cut(path, size)

    # ---- saving and restoring -------------------------------------------------------------------------------

    def keep(self, state: Walk, callbacks: list[Any]) -> list[list[Any]]:
        """Return [name, copy, size, size as the iterator opened] of each file as it is now; raises OSError."""
        held = descriptors.for_writing()
        found: list[list[Any]] = [
            [self._portable(path), self._copies[path], len(content), self._opened.get(path, len(content))]
            for path, content in self._due.items()
        ]
        for name, path, handle in self._written(state, callbacks, held):
            if hasattr(handle, "flush"):
                handle.flush()
            if not os.path.isfile(path) or self._is_shared(path):
                continue
            size = os.path.getsize(path)
            if descriptors.is_anothers(path, size, held):
                self._share(path)
            else:
                opened = min(self._opened.get(path, size), size)
                found.append([self._portable(name), self._copied(name, path, size), size, opened])
        open_now = {one.path for one in held}
        closed = [path for path in list(self.appended) if os.path.realpath(path) not in open_now]
        self._left = {
            **{path: size for path, size in self._left.items() if path in self._due},
            **{path: os.path.getsize(path) for path in closed if os.path.isfile(path)},
        }
        return found

    def restore(self, kept: list[list[Any]], state: Walk, callbacks: list[Any]) -> int:
        """Restore the content of each kept file, or when it is opened; raises OSError.  Return how many differed."""
        held = descriptors.for_writing()
        there = {name: (path, handle) for name, path, handle in self._written(state, callbacks, held)}
        later = self._recorded("")
        changed = 0
        for known, copy, size, *opened in kept:
            name = process_key.native(known, self._root)
            path, handle = there.get(name, (name, None))
            later.pop(path, None)
            if not os.path.isabs(path) or not copy.isdecimal() or self._is_shared(path):
                continue  # a handle that does not exist in this process, for instance
            if hasattr(handle, "flush"):
                handle.flush()
            with open(os.path.join(self.folder, copy), "rb") as file:
                content = file.read(size)
            self._copies[name] = copy
            self._kept[path] = copy, size, opened[0] if opened else size
            self._opened[path] = self._kept[path][2]
            if name not in there:
                self._due[path] = content
                if os.path.isfile(path):
                    self._left[path] = os.path.getsize(path)
                continue
            changed += self._set(path, content)
            self._restored.add(path)
            if name == path and handle is None:
                self.appended.setdefault(path, size)
            self._to_end(handle, path, callbacks)
        # What was opened after the checkpoint was made.
        known = {*self.appended, *(path for path, _ in there.values())}
        self._cuts = {path: size for path, size in later.items() if path not in known}
        return changed

    def changing(self, state: Walk, callbacks: list[Any]) -> dict[str, str]:
        """Return {path: how} of open files that a resume leaves; note the length of others.  Raises OSError."""
        held = descriptors.for_writing()
        self._note_beginning(self._written(state, callbacks, held), held, callbacks)
        return {path: how for path, (how, _) in self._changing.items()}

    def _note_beginning(
        self, written: list[tuple[str, str, Any]], held: list[Descriptor], callbacks: list[Any]
    ) -> None:
        """Record the length of the open files; cut off first what an earlier attempt of a fit that starts over added.

        One that the script opened anew in this attempt has nothing of an earlier one, unless it was restored.
        """
        known = self._recorded("", HELD)
        appending = {one.path for one in held if one.appends}
        for _, path, handle in written:
            if handle is None or not os.path.isfile(path) or self._is_shared(path):
                continue
            if hasattr(handle, "flush"):
                handle.flush()
            size, before = os.path.getsize(path), self._length_due(path)
            is_earlier = os.path.realpath(path) in appending or path in self._restored
            if before is not None and before < size and is_earlier:
                self._shorten(path, before, handle, callbacks)
                size = before
            if path not in known:
                self._write_length(HELD, size, path)

    def draw_again(self) -> None:
        """Have the restored files hold what they held as the loop began: the pipeline is drawn again."""
        self._handles_of(self._restored)
        for path in self._restored & set(self._kept):
            with open(path, "rb") as file:
                file.seek(self._kept[path][1])
                self._since[path] = file.read()
        begun = {path: begin + len(rest) for path, (begin, rest) in (self._at_loop or {}).items()}
        begun = {**self._before, **begun}
        self._fill({path: min(begun.get(path, size), size) for path, (_, size, _) in self._kept.items()})

    def data_open(self, *, again: bool) -> None:
        """Note what the files hold as the iterator opens; `again`: restore what they held then.  Raises OSError."""
        if again:
            self._fill({path: opened for path, (_, _, opened) in self._kept.items()})
        else:
            for handle in self._handles:
                if not handle.closed:
                    handle.flush()
            paths = (*(self._at_loop or ()), *self.appended)  # a search for others takes 1 ms, and this is each epoch
            self._opened = {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}

    def drawn_again(self) -> list[str]:
        """Have the restored files hold what they held before; return the names of those that grew.  Raises OSError."""
        grown = self._fill({path: size for path, (_, size, _) in self._kept.items()}, self._since)
        self._lengths = {}
        return grown

    def _fill(self, lengths: dict[str, int], since: dict[str, bytes] | None = None) -> list[str]:
        """Have files hold the beginning of what the checkpoint has, and what they had `since`.  Return which grew."""
        handles, self._lengths = self._handles_of(self._restored), lengths
        grown: list[str] = []
        for path in sorted(self._restored & set(lengths)):
            copy, length = self._kept[path][0], lengths[path]
            if self._is_shared(path) or not os.path.isfile(path):
                continue
            with open(os.path.join(self.folder, copy), "rb") as file:
                content = file.read(length) + (since or {}).get(path, b"")
            with open(path, "rb") as file:
                now = file.read()
            if len(now) > self._filled.get(path, len(now)):
                grown.append(os.path.basename(path))
            self._filled[path] = len(content)
            if now != content:
                with descriptors.appending(handles.get(path)):
                    with open(path, "r+b") as file:
                        file.write(content)
                        file.truncate()
                    self._to_end(handles.get(path), path, [])
        return grown

    def _handles_of(self, paths: set[str]) -> dict[str, Any]:
        """Return the handle of each of these files that is open, or its number; the buffers are empty then."""
        real = {os.path.realpath(path): path for path in paths}
        held = [one for one in descriptors.for_writing() if one.path in real] if real else []
        handles = descriptors.handles_of(held)
        for handle in handles.values():
            handle.flush()
        return {real[one.path]: handles.get(one.number, one.number) for one in held}

    def _shorten(self, path: str, size: int, handle: Any, callbacks: list[Any]) -> None:
        with descriptors.appending(handle):
            self._cut(path, size)
            self._to_end(handle, path, callbacks)

    def _to_end(self, handle: Any, path: str, callbacks: list[Any]) -> None:
        """Move a handle to the end of its file, whose content has been replaced; raises OSError."""
        owner = next((one for one in callbacks if getattr(one, "csv_file", None) is handle), None)
        if isinstance(handle, int):
            os.lseek(handle, 0, os.SEEK_END)
        elif hasattr(handle, "seekable") and not hasattr(handle, "_FileIO__name"):
            handle.seek(0, os.SEEK_END)
        elif handle is not None and owner is not None:  # TensorFlow's file object in Keras 2 cannot seek
            handle.close()
            owner.csv_file = type(handle)(path, "a")
        if handle is not None and owner is not None:
            owner.append_header = not os.path.getsize(path)

    def changed(self) -> dict[str, str]:
        """Return {name: how} of the files that have changed in this fit and that a resume leaves as they are."""
        return {
            self._portable(path): how
            for path, (how, before) in sorted(self._changing.items())
            if how == SHARED or _state_of(path) not in (before, None)
        }

    def _portable(self, path: str) -> str:
        return process_key.portable(path, self._root)

    def _written(self, state: Walk, callbacks: list[Any], held: list[Descriptor]) -> list[tuple[str, str, Any]]:
        """Return (name, path, handle or None) of the files written line by line; a handle's name is its slot.

        Register the files that are written in another way.  The handle of a descriptor without an object is its number.
        """
        found: list[tuple[str, str, Any]] = []
        for index, callback in enumerate(callbacks):
            if type(callback).__name__ == CSV:
                handle = getattr(callback, "csv_file", None)
                closed = handle is None or getattr(handle, "closed", False)
                path = os.path.abspath(os.fsdecode(callback.filename))
                found.append(("%s%d" % (CSV_NAME, index), path, None if closed else handle))
        known = {path for _, path, _ in found}
        for slot, handle in [*state.files, *descriptors.of_logging()]:
            name = getattr(handle, "name", None)
            if isinstance(name, str) and not handle.closed and handle.writable() and os.path.isfile(name):
                path = os.path.abspath(name)
                if path not in known and not descriptors.is_standard(handle):
                    known.add(path)
                    if descriptors.is_plain(handle):
                        found.append((slot, path, handle))
                    else:
                        self.changes(path, file_events.COMPRESSED)
        found += self._of_descriptors({os.path.realpath(path) for path in known}, held)
        # By its path: this attempt has opened it in the fit, and the next one can be resumed before it does.
        opened = {os.path.realpath(path): path for path in sorted(self.appended)}
        named = []
        for name, path, handle in found:
            mine = None if name.startswith(CSV_NAME) else opened.pop(os.path.realpath(path), None)
            named.append((name, path, handle) if mine is None else (mine, mine, handle))
        return [*named, *((path, path, None) for path in opened.values())]

    def _of_descriptors(self, known: set[str], held: list[Descriptor]) -> list[tuple[str, str, Any]]:
        """Return what `_written` does, of the files that nothing else leads to.  `known`: those that something does."""
        events = file_events.events
        wish = settings.of(os.environ)
        places = [wish.pages, wish.checkpoints, self.folder]
        own = tuple(os.path.realpath(place) + os.sep for place in places if place)
        streams = []
        for one in held:
            if one.path in known or one.path.startswith(own):
                continue
            how = events.changed.get(one.path) or file_events.by_beginning(descriptors.beginning(one, TAIL))
            if how:
                self.changes(one.path, how)
            else:
                streams.append(one)
        handles = descriptors.handles_of(streams)
        found: dict[str, tuple[str, str, Any]] = {}
        for one in streams:
            handle = handles.get(one.number)
            if handle is None and not one.appends and one.path not in events.unbuffered:
                continue  # a C library's, such as TensorFlow's files of events: they are new in each attempt
            with open(one.path, "rb") as file:
                how = file_events.by_beginning(file.read(TAIL))
            if one.is_read and not one.appends:
                self.changes(one.path, file_events.IN_PLACE)
            elif how or not (handle is None or descriptors.is_plain(handle)):
                self.changes(one.path, how or file_events.COMPRESSED)
            else:
                found.setdefault(one.path, (one.path, one.path, one.number if handle is None else handle))
        return list(found.values())

    def _copied(self, name: str, path: str, size: int) -> str:
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
        """Shorten a file that is longer, and keep the end that is cut off."""
        if os.path.getsize(path) <= size:
            return
        with open(path, "rb") as file:
            file.seek(size)
            end = file.read()
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, CUT), "ab", opener=no_link) as file:
            file.write(("--- of %s\n" % path).encode("utf-8", "replace") + end)
        os.truncate(path, size)


def _end(path: str, size: int) -> str:
    """Return a digest of the last TAIL bytes before a length, "" for a file that is shorter.  Raises OSError."""
    if not size:
        return "0"
    if not os.path.isfile(path) or os.path.getsize(path) < size:
        return ""
    with open(path, "rb") as file:
        file.seek(max(0, size - TAIL))
        return "%x" % zlib.crc32(file.read(min(size, TAIL)))


def _state_of(path: str) -> Any:
    """Return what differs after a change of a file; None if there is none.  The log of SQLite is a part of it."""
    states: list[Any] = []
    for one in (path, path + "-wal"):
        try:
            now = os.stat(one)
            states.append((now.st_mtime_ns, now.st_size, now.st_ino))
        except OSError:
            states.append(None)
    return states if states[0] else None
