"""The name of an incident: the same hang has the same short name on each machine and in each night.

A name is a word for the cause, a dash and six hexadecimal digits: `wait-3fa91c`.  The word is the key of the cause; all
causes of an idle wait share the word `wait`, because which of them is likeliest depends on what a system shows (macOS
shows no wait sites of threads) and on other load.  The digits are those of a hash of three things: the word, the phase
of the training, and the place.  What the place is depends on the cause:

- A cause of PLACED has its place in the code: the calls of the main thread, and those of the script's threads for which
  it waits.
- Any other cause (a lack of memory, an error of the GPU, a kill) meets the training at some line by chance.  Its place
  is the known line of the output that says most, the signal or exit code, and the type of a Python exception.

Calls are written so that only a change of the hang changes them:

- A call of the script is the name of its file and of its function: no directory, because the same training starts from
  several; no line, because an edit above it would change the name.  Two hangs in one function have one name.
- Calls in a row inside libraries are one: the package, and the public function that the script called (`keras.fit`,
  `Python.join`).  What lies below differs between versions of Python and of the library; it shows as a class of
  collectors.frames (waits for a lock, for the library, for a batch), which is the same for all ways to wait there.
- Decorators, comprehensions (Python 3.12 has no frame for them) and stallguard's own frames are left out, and so is
  what began a thread.  Digits in a file's name, and long numbers in a function's, are replaced: notebooks and temporary
  files have new ones in each process.
- Threads have no names, numbers or order.

A loop that never ends moves, so its stacks are taken several times (collectors.collector_registry), and its place is
what they have in common.  A call that takes nearly all of the time of such a loop can still be in all dumps.

Pure: threads and words in, text out.  Must not read files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import PurePath

from stallguard.collectors import frames, stacks
from stallguard.collectors.frames import Frame
from stallguard.collectors.stacks import Thread
from stallguard.core.diagnosis import causes, signatures
from stallguard.report import stack_groups

VERSION = 1  # of the way in which names are made; a stored name of another version is made again
DIGITS = 6  # 24 bits: of 100 incidents with one cause, two have the same name by chance once in 3400 homes
UNNAMED = ""
WAIT = "wait"
WAITS = frozenset({
    causes.DEVICE_WAIT, causes.HOST_DEADLOCK, causes.OUTSIDE_WAIT, causes.INPUT_STARVATION, causes.UNKNOWN,
})  # fmt: skip
PLACED = WAITS | {causes.GIL_HELD, causes.BUSY_LOOP, causes.SAVING, causes.COMPILING, causes.EXIT_HANG}
_COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_WRAPPERS = frozenset({"error_handler", "wrapper", "wrapped", "inner", "decorated", "new_func", "decorator"})
_GENERATED = re.compile(r"__autograph_generated_file")
_LONG_NUMBER = re.compile(r"\d{3,}")
_EXCEPTION = re.compile(r"(?:[\w.]*\.)?(\w+)(?::|$)")


def name(cause: str, phase: str, place: Sequence[str]) -> str:
    """Return the name of an incident; `place`: of `stall_place` or `end_place`."""
    word = WAIT if cause in WAITS else cause
    text = "\n".join((str(VERSION), word, phase if cause in PLACED else "", *place))
    return f"{word}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:DIGITS]}"


def stall_place(threads: Sequence[Thread]) -> tuple[str, ...]:
    """Return where a stalled training stands, a line for each thread that matters; empty without stacks.

    `threads`: of one dump, or what several have in common.
    """
    main = stacks.main_thread(threads)
    if main is None:
        return ()
    others: Iterable[Thread] = ()
    kind = frames.classify(main.frames)
    if not any(
        frames.is_own(frame) for frame in main.frames
    ):  # the script is over, and a thread of it is not
        others = (one for one in threads if any(frames.is_own(frame) for frame in one.frames))
    elif kind in frames.WAITS_FOR_OTHERS:
        others = (one for one in threads if frames.is_called_by_library(one.frames))
    beside = {f"beside: {_line(one.frames)}" for one in others if one is not main}
    return (f"main: {_line(main.frames)}", *sorted(beside))


def end_place(printed: Iterable[str], how: str, exception: str) -> tuple[str, ...]:
    """Return what identifies an end, or a stall whose place in the code is chance.

    `printed`: ids of known lines of the output; `how`: signal or exit code; `exception`: the last line of a traceback.
    """
    known = set(printed)
    said = next(
        (
            one.id
            for one in signatures.BY_ID.values()
            if one.id in known and one.family not in signatures.QUIET
        ),
        "",
    )
    found = _EXCEPTION.match(exception.strip())
    return (f"printed: {said}", f"ended: {how}", f"exception: {found[1] if found else ''}")


def _line(called: Sequence[Frame]) -> str:
    """Return the calls of a thread as one line, the innermost first."""
    return " < ".join((frames.classify(called), *_calls(called)))


def _calls(called: Sequence[Frame]) -> Iterator[str]:
    """Yield the calls of a thread, innermost first, equal ones in a row once."""
    shown = [
        one
        for one in called
        if stack_groups.package(one) != "stallguard" and one.function not in _COMPREHENSIONS
    ]
    runs = [(own, list(run)) for own, run in groupby(shown, key=frames.is_own)]
    while runs and not runs[-1][0]:  # what began the thread, or runs the script
        runs.pop()
    texts = [text for own, run in runs for text in (map(_own_call, run) if own else [_library_call(run)])]
    return (text for text, _ in groupby(texts))


def _own_call(frame: Frame) -> str:
    path = PurePath(frame.file)
    plain = path.stem if path.stem not in ("__init__", "__main__") else f"{path.parent.name}.{path.stem}"
    return f"{re.sub(r'[0-9]+', '0', plain)}:{_LONG_NUMBER.sub('0', frame.function)}"


def _library_call(run: Sequence[Frame]) -> str:
    """Return the package and the public function of it that the script called."""
    written = [frame for frame in run if not _GENERATED.search(frame.file)] or run
    called = next((frame for frame in reversed(written) if _is_public(frame)), None)
    if called is not None:
        return f"{stack_groups.package(called)}.{called.function}"
    return stack_groups.package(written[-1])


def _is_public(frame: Frame) -> bool:
    is_private = frame.function.startswith(("_", "<")) and not frame.function.startswith("__")
    return not is_private and frame.function not in _WRAPPERS and not frame.file.startswith("<frozen")
