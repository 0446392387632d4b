"""Removes the probe's frames from the traceback of an exception that passes through a wrapper.

Each wrapper is a frame between the user's program and its library.  A traceback names it, no matter who prints it:
Python, a thread, `traceback.format_exc()`, a logger, a hook of the script.  So the frames are removed where the
exception leaves the wrapper, not where it is printed.

Python adds a frame when an exception is raised in it, or comes out of a call in it.  A bare `raise` in an `except`
block adds none (Python/ceval.c: it continues at exception_unwind, behind PyTraceBack_Here).  So after `remove(error)`
a bare `raise` in the same `except` block leaves no trace of that frame.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType, TracebackType
    from typing import Any, Callable, Optional

# A warning names the script's line, some frames up (stacklevel).  Python does not count frames of its import machinery,
# which it identifies by two words in their file name (Python/_warnings.c, is_internal_frame; warnings.py): with them,
# our wrapper is not counted either.  AutoGraph reads the source of functions, but not in these packages
# (autograph/core/config.py).
SKIPPED = " (as importlib._bootstrap)"
PACKAGE = __name__.rpartition(".")[0]
# From 3.11 on a bare `raise` takes the traceback from the exception.  Before, it takes the one that the thread noted as
# the `except` block began (do_raise in Python/ceval.c), which only the C interface can replace.
NOTED = sys.version_info < (3, 11)
# The code of the wrappers, by id(): a hash of a code object reads all of it.
_WRAPPERS: dict[int, CodeType] = {}


def note_wrappers(*wrappers: Any) -> None:
    """Note functions that stand between a caller and its library: a thread in them waits in what they call."""
    for wrapper in wrappers:
        code = getattr(wrapper, "__code__", None)
        if code is not None:
            _WRAPPERS[id(code)] = code


def behind_wrappers(frame: Optional[FrameType]) -> Optional[FrameType]:
    """Return the frame that called the wrappers in which `frame` is; the same frame if it is in none.

    `loss.item()` waits for its device in C, below a wrapper of the probe: the caller's line says what it waits for.
    """
    while frame is not None and _WRAPPERS.get(id(frame.f_code)) is frame.f_code:
        frame = frame.f_back
    return frame


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `function`, and leaves none of the probe's frames in what it raises.

    Costs 0.1 microseconds a call (Python 3.11).
    """

    def passed(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            remove(error)
            raise

    return passed


def removes_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a wrapper that calls `remove` itself: it runs in each batch, and must not cost a second frame."""
    vars(function)["removes_its_own"] = True  # Patches.wrap then adds no `passing`
    return function


def yielding(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return the same for a generator function."""

    def yielded(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            yield from function(*args, **kwargs)
        except BaseException as error:
            remove(error)
            raise

    return yielded


def remove(error: BaseException) -> None:
    """Remove the probe's frames from the traceback of `error`; a bare `raise` in the caller's `except` must follow."""
    try:
        first = _behind(error.__traceback__)
        at = first
        while at is not None:
            following = _behind(at.tb_next)
            if following is not at.tb_next:
                at.tb_next = following
            at = following
        error.__traceback__ = first
        if NOTED:
            _note(error, first)
    except Exception:  # the traceback names the probe, too
        return


def files() -> frozenset[str]:
    """Return the file names of the probe's code, also as `Patches` changes them."""
    found = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(os.path.dirname(__file__))
        for name in names
        if name.endswith(".py")
    ]
    return frozenset(found + [name + SKIPPED for name in found])


def _behind(at: Optional[TracebackType]) -> Optional[TracebackType]:
    """Return the first entry from `at` on that is not of the probe."""
    while at is not None and str(at.tb_frame.f_globals.get("__name__")).startswith(PACKAGE):
        at = at.tb_next
    return at


def _note(error: BaseException, first: Optional[TracebackType]) -> None:
    """Have the thread note this traceback for the exception that it handles."""
    import ctypes

    words = [ctypes.py_object(word) for word in (type(error), error, first)]
    for word in words:
        ctypes.pythonapi.Py_IncRef(word)  # PyErr_SetExcInfo takes over a reference of each
    ctypes.pythonapi.PyErr_SetExcInfo(*words)
