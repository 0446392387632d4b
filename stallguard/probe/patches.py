"""Replaces methods by wrappers, removes the wrappers again after internal errors, and keeps them out of tracebacks.

Each wrapper is a frame between the user's program and its library.  A traceback names it, no matter who prints it:
Python, a thread, `traceback.format_exc()`, a logger, a hook of the script.  So the frames are removed where the
exception leaves the wrapper, not where it is printed.

Python adds a frame when an exception is raised in it, or comes out of a call in it.  A bare `raise` in an `except`
block adds none (Python/ceval.c: it continues at exception_unwind, behind PyTraceBack_Here).  So after `remove(error)`
a bare `raise` in the same `except` block leaves no trace of that frame.

Nothing here raises: what cannot be wrapped stays as it was.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType, TracebackType
    from typing import Any, Callable, Optional

    Function = Callable[..., Any]
    Maker = Callable[[Function], Function]

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


def standing_for(original: Function, make: Maker) -> Function:
    """Return make(original), which looks like the original and leaves none of the probe's frames in what it raises."""
    made = make(original)
    removes = getattr(made, "removes_its_own", False)  # asked before it gets the attributes of another wrapper
    inner = wrapper = _alike(made, original)
    if not removes:
        # Two frames between caller and original: this one, and the one that `make` returns.
        wrapper = _alike(passing(inner), original)
    note_wrappers(inner, wrapper)
    return wrapper


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


# Wrappers of all other packages get SKIPPED in their file name; torch.compile passes by the code as its module has it
# (hooks/torch.py).
TORCH = "torch"
LIMIT = 8  # internal errors until the probe disables itself


class Patches:
    """All wrappers that are installed."""

    def __init__(self, aside: Optional[Callable[[str], None]] = None) -> None:
        self._in: list[tuple[Any, str, Any, Any]] = []  # owner, name, original, wrapper
        self._resting: list[tuple[Any, str, Any, Any]] = []  # those that are not needed in loops of libraries
        self._switches: list[tuple[Callable[[], object], Callable[[], object]]] = []  # off, and on again
        self._out = self._rests = False
        self._aside = aside
        self.surprises = 0

    def wrap(self, owner: Any, name: str, make: Maker) -> bool:
        """Replace `owner.name` by make(original); return False if `owner` has no such attribute of its own.

        What the original raises has the traceback that it has without the probe.
        Also False after `take_out`: modules that are imported later stay as they are.
        """
        if self._out:
            return False
        try:
            before = vars(owner).get(name)
            static = isinstance(before, staticmethod)
            original = before.__func__ if isinstance(before, staticmethod) else before
            if original is None or not callable(original):
                return False
            wrapper = standing_for(original, make)
            after = staticmethod(wrapper) if static else wrapper
            setattr(owner, name, after)
        except Exception as error:
            self.surprise("wrapping " + name, error)
            return False
        self._in.append((owner, name, before, after))
        return True

    def also(self, off: Callable[[], object], on: Callable[[], object]) -> bool:
        """Call `on`, and have `take_out` call `off` and `put_back` call `on`: for what is no wrapper.

        False after `take_out`, and if `on` raises.
        """
        if self._out:
            return False
        try:
            on()
        except Exception as error:
            self.surprise("switching a hook on", error)
            return False
        self._switches.append((off, on))
        return True

    def take_out(self) -> None:
        """Put the originals back, except where another program's wrapper was installed since."""
        self._out = True
        _restore(self._in)
        for off, _ in self._switches:
            off()

    def put_back(self) -> None:
        """Undo `take_out`: for measurements that compare both in one process."""
        self._out = False
        _apply([one for one in self._in if not self._rests or one not in self._resting])
        for _, on in self._switches:
            on()

    def may_rest(self, owner: Any, name: str) -> None:
        """Remove this wrapper while a library's loop runs, because it costs time in every call."""
        self._resting += [entry for entry in self._in if entry[0] is owner and entry[1] == name]

    def rest(self) -> None:
        """Remove the wrappers that a library's loop does not need; the loop begins."""
        self._rests = True
        _restore(self._resting)

    def resume(self) -> None:
        """Install them again; the loop is over."""
        self._rests = False
        if not self._out:
            _apply(self._resting)

    def surprise(self, where: str, error: BaseException) -> None:
        """Count an internal error; at LIMIT the probe disables itself."""
        self.surprises += 1
        if self.surprises == LIMIT and self._aside is not None:
            self._aside("%s: %s: %s" % (where, type(error).__name__, error))


def _restore(entries: list[tuple[Any, str, Any, Any]]) -> None:
    for owner, name, before, after in reversed(entries):
        if vars(owner).get(name) is after:
            setattr(owner, name, before)


def _apply(entries: list[tuple[Any, str, Any, Any]]) -> None:
    for owner, name, before, after in entries:
        if vars(owner).get(name) is before:
            setattr(owner, name, after)


def _alike(wrapper: Function, original: Function) -> Function:
    """Give the wrapper the original's name and attributes: AutoGraph, inspect and pickle then treat both alike.

    As functools.update_wrapper; importing that costs milliseconds in a process that does not train.
    """
    for name in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__"):
        if getattr(original, name, None) is not None:  # a method of nanobind has None for some
            setattr(wrapper, name, getattr(original, name))
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    code = getattr(wrapper, "__code__", None)
    if code is not None and str(getattr(original, "__module__", "")).split(".")[0] != TORCH:
        wrapper.__code__ = code.replace(co_filename=code.co_filename + SKIPPED)
    return wrapper
