"""Python stacks as faulthandler writes them: threads, frames, and the script's line at which it hangs.

The text is the same in Python 3.9 to 3.13 (Python/traceback.c, _Py_DumpTracebackThreads); 3.14 adds thread
names.  Threads come newest first, frames innermost first, at most 100 of each.  frames.py classifies the frames.
Pure: text in, values out; a truncated text gives the threads that it contains.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from itertools import takewhile

import msgspec

from stallguard.collectors import frames
from stallguard.collectors.frames import Frame

_THREAD = re.compile(
    r"(?P<current>Current thread|Thread) (?P<ident>0x[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent"
)
_FRAME = re.compile(r'  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<function>.*)')
DIGITS = 9  # of a number of a line, at most
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


class Thread(msgspec.Struct, frozen=True):
    """A thread of a dump; frames innermost first.  `current`: the one that took the signal."""

    ident: str
    frames: tuple[Frame, ...] = ()
    current: bool = False
    name: str = ""


class StackDump(msgspec.Struct, frozen=True):
    """The content of a dump.  `classes`: see frames.py, the main thread's first; `where`: the script's line."""

    threads: int
    where: str = ""
    classes: tuple[str, ...] = ()
    fingerprint: str = ""


def parse(text: str) -> list[Thread]:
    """Return the threads of a dump, as written."""
    threads: list[Thread] = []
    found: list[Frame] = []
    for line in text.splitlines():
        head, frame = _THREAD.match(line), _FRAME.match(line)
        if head:
            found = []
            current = head["current"].startswith("Current")
            threads.append(Thread(head["ident"], current=current, name=head["name"] or ""))
        elif frame and threads:
            number = int(frame["line"]) if frame["line"].isdecimal() and len(frame["line"]) <= DIGITS else 0
            found.append(Frame(_unescaped(frame["file"] or "?"), number, _unescaped(frame["function"])))
            threads[-1] = msgspec.structs.replace(threads[-1], frames=tuple(found))
    return threads


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), text)


def main_thread(threads: Sequence[Thread]) -> Thread | None:
    """Return the main thread: the one whose outermost frame runs a module, else the oldest."""
    for thread in reversed(threads):
        if thread.frames and thread.frames[-1].function in ("<module>", "_run_module_as_main"):
            return thread
    return threads[-1] if threads else None


def hung_at(threads: Sequence[Thread], main_wait: str = "") -> Frame | None:
    """Return the frame of the script at which the training waits.

    That is the main thread's innermost frame of the script, unless the main thread waits for code of the script in
    another thread (a generator, a py_function, a dataset's __getitem__): inside the library, or for the interpreter's
    lock.  Who waits for that lock wakes every 5 ms (take_gil in Python/ceval_gil.c); `main_wait` shows it as "timed".
    """
    main = main_thread(threads)
    if main is None:
        return None
    waits_for_lock = main_wait == "timed" and any(frames.is_own(frame) for frame in main.frames[:1])
    if waits_for_lock or frames.classify(main.frames) in frames.WAITS_FOR_OTHERS:
        for thread in threads:
            if thread is not main and frames.is_called_by_library(thread.frames):
                return _innermost_own(thread)
    return _innermost_own(main)


def _innermost_own(thread: Thread) -> Frame | None:
    return next((frame for frame in thread.frames if frames.is_own(frame)), None)


def classes(threads: Sequence[Thread]) -> tuple[str, ...]:
    """Return what the threads do, each class once, the main thread's first, without idle threads."""
    main = main_thread(threads)
    order = [main] if main else []
    order += [thread for thread in threads if thread is not main and frames.speaks(thread.frames)]
    found = [frames.classify(thread.frames) for thread in order]
    return tuple(dict.fromkeys(kind for kind in found if kind))


def runs_the_script(threads: Sequence[Thread]) -> bool:
    """Return whether the script's own code can be running: the main thread's, or what a framework called."""
    main = main_thread(threads)
    relevant = [thread for thread in threads if thread is main or frames.is_called_by_library(thread.frames)]
    return any(
        frames.classify(thread.frames) in (frames.USER, frames.CALLBACK, frames.GENERATOR)
        for thread in relevant
    )


def common(dumps: Sequence[Sequence[Thread]]) -> list[Thread]:
    """Return the threads of the first dump with the calls that they have in all dumps, from the outermost on.

    Of a loop that calls functions these are the calls down to the loop, with none of those that only some dumps met.  A
    thread of a dump that was cut off, or that is missing there, does not count.
    """
    found = []
    for thread in dumps[0] if dumps else ():
        shared = thread.frames
        for dump in dumps[1:]:
            other = next((one.frames for one in dump if one.ident == thread.ident), ())
            pairs = zip(reversed(shared), reversed(other), strict=False)
            same = sum(1 for _ in takewhile(_is_same_call, pairs))
            shared = shared[len(shared) - same :] if same else shared
        found.append(msgspec.structs.replace(thread, frames=shared))
    return found


def _is_same_call(pair: tuple[Frame, Frame]) -> bool:
    return (pair[0].file, pair[0].function) == (pair[1].file, pair[1].function)


def fingerprint(threads: Sequence[Thread]) -> str:
    """Return a text that is equal for two dumps of a training that has not moved in between.

    It contains the main thread, and the script's code in the library's threads.
    """
    main = main_thread(threads)
    kept = [
        thread.frames for thread in threads if thread is main or frames.is_called_by_library(thread.frames)
    ]
    return hashlib.sha256(repr(kept).encode()).hexdigest()[:16] if kept else ""


def read(text: str, cwd: str = "", main_wait: str = "") -> StackDump:
    """Return the content of a dump.

    `cwd`: the script's working directory, for a short name of its file; `main_wait`: EVIDENCE_TOOLS.main_wait().
    """
    threads = parse(text)
    at = hung_at(threads, main_wait)
    return StackDump(len(threads), place(at, cwd) if at else "", classes(threads), fingerprint(threads))


def place(frame: Frame, cwd: str) -> str:
    """Return a frame as "file.py:12 in function"."""
    inside = bool(cwd) and frame.file.startswith(cwd.rstrip("/") + "/")
    name = os.path.relpath(frame.file, cwd) if inside else frame.file
    function = "" if frame.function == "<module>" else f" in {frame.function}"
    return f"{name}:{frame.line}{function}"
