"""Replaces methods by wrappers, and removes the wrappers again after internal errors.

Nothing here raises: what cannot be wrapped stays as it was.
"""

from __future__ import annotations

from . import own_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    Function = Callable[..., Any]
    Maker = Callable[[Function], Function]

# Wrappers of all other packages get SKIPPED in their file name; torch.compile passes by the code as its module has it
# (hooks/torch.py).
TORCH = "torch"
LIMIT = 8  # internal errors until the probe disables itself


class Patches:
    """All wrappers that are installed."""

    def __init__(self, aside: Optional[Callable[[str], None]] = None) -> None:
        self._in: list[tuple[Any, str, Any, Any]] = []  # owner, name, original, wrapper
        self._resting: list[tuple[Any, str, Any, Any]] = []  # those that are not needed during Keras' loops
        self._out = False
        self._aside = aside
        self.surprises = 0

    def wrap(self, owner: Any, name: str, make: Maker) -> bool:
        """Replace `owner.name` by make(original); return False if `owner` has no such attribute of its own.

        What the original raises has the traceback that it has without the probe (own_frames.py).
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
            inner = wrapper = _alike(make(original), original)
            if not getattr(inner, "removes_its_own", False):
                # Two frames between caller and original: this one, and the one that `make` returns.
                wrapper = _alike(own_frames.passing(inner), original)
            own_frames.note_wrappers(inner, wrapper)
            after = staticmethod(wrapper) if static else wrapper
            setattr(owner, name, after)
        except Exception as error:
            self.surprise("wrapping " + name, error)
            return False
        self._in.append((owner, name, before, after))
        return True

    def take_out(self) -> None:
        """Put the originals back, except where another program's wrapper was installed since."""
        self._out = True
        _restore(self._in)

    def put_back(self) -> None:
        """Undo `take_out`: for measurements that compare both in one process."""
        self._out = False
        _apply(self._in)

    def may_rest(self, owner: Any, name: str) -> None:
        """Remove this wrapper while a Keras loop runs, because it costs time in every call."""
        self._resting += [entry for entry in self._in if entry[0] is owner and entry[1] == name]

    def rest(self) -> None:
        """Remove the wrappers that a Keras loop does not need; the loop begins."""
        _restore(self._resting)

    def resume(self) -> None:
        """Install them again; the loop is over."""
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
        if hasattr(original, name):
            setattr(wrapper, name, getattr(original, name))
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    code = getattr(wrapper, "__code__", None)
    if code is not None and str(getattr(original, "__module__", "")).split(".")[0] != TORCH:
        wrapper.__code__ = code.replace(co_filename=code.co_filename + own_frames.SKIPPED)
    return wrapper
