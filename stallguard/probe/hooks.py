"""The forms of a hook: actions before, after or around a call, and around what writes or reads checkpoints.

A hook wraps a function of a library and records the training's progress.  If a library's version lacks a function, its
hook is missing from the hello, and the others work.  Only this code runs between the user's program and its library.
An exception of an action is reported and dropped, an exception of the library is passed on.
"""

from __future__ import annotations

import os

from . import patches
from .beats import CHECKPOINT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .context import Context, Targets
    from .patches import Function, Maker


def before(context: Context, action: Callable[..., object]) -> Maker:
    """Return a maker of a wrapper that first calls action(*the call's arguments)."""

    def make(original: Function) -> Function:
        @patches.removes_its_own
        def hooked(*args: Any, **kwargs: Any) -> Any:
            try:
                action(*args, **kwargs)
            except Exception as error:
                context.surprise(original.__name__, error)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                patches.remove(error)
                raise

        return hooked

    return make


def after(context: Context, action: Callable[..., object]) -> Maker:
    """Return a maker of a wrapper that calls action(*the call's arguments) after a call without an error."""

    def make(original: Function) -> Function:
        @patches.removes_its_own
        def hooked(*args: Any, **kwargs: Any) -> Any:
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                action(*args, **kwargs)
            except Exception as error:
                context.surprise(original.__name__, error)
            return result

        return hooked

    return make


def arguments_of(signature: Any, *args: Any, **named: Any) -> Optional[dict[str, Any]]:
    """Return the arguments of a call of a method by name, without `self`; None if the method does not take them.

    The caller then calls the original outside of an `except`: its error would have the one here as its context.
    """
    try:
        return dict(list(signature.bind(*args, **named).arguments.items())[1:])
    except TypeError:
        return None


def around(
    context: Context, opens: Callable[..., Any], closes: Callable[[Any, Any], object], fails: Callable[[Any], object]
) -> Maker:
    """Return a maker of a wrapper that calls actions before and after the call.

    opens(*the call's arguments) returns a state, or None to ignore this call.  After the call comes
    closes(state, result), or fails(state) if it raised.
    """

    def make(original: Function) -> Function:
        @patches.removes_its_own
        def hooked(*args: Any, **kwargs: Any) -> Any:
            try:
                state = opens(*args, **kwargs)
            except Exception as error:
                context.surprise(original.__name__, error)
                state = None
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                try:
                    if state is not None:
                        fails(state)
                except Exception as own:
                    context.surprise(original.__name__, own)
                patches.remove(error)
                raise
            try:
                if state is not None:
                    closes(state, result)
            except Exception as error:
                context.surprise(original.__name__, error)
            return result

        return hooked

    return make


def own_classes(module: Any, attribute: str) -> list[Any]:
    """Return the classes that `module` itself defines and that themselves define `attribute`."""
    return [
        kind
        for kind in list(vars(module).values())
        if isinstance(kind, type) and kind.__module__ == module.__name__ and attribute in vars(kind)
    ]


class SaveHooks:
    """The wrappers of the functions that write and read checkpoints, and count how many were written.

    `where`: module -> (class or "", names of functions that write, names of those that read).
    """

    def __init__(self, context: Context, where: dict[str, tuple[str, str, str]]) -> None:
        self.context = context
        self.beats = context.beats
        self._where = where

    def targets(self) -> Targets:
        """Return {module name: patch(module)}."""
        return dict.fromkeys(self._where, self.patch)

    def patch(self, module: Any) -> None:
        """Wrap the functions of a module, or of a class that it defines itself."""
        kind, writes, reads = self._where[module.__name__]
        owner = vars(module).get(kind) if kind else module
        if owner is not None and (not kind or owner.__module__ == module.__name__):
            self._wrap(owner, tuple(writes.split()), tuple(reads.split()))

    def _wrap(self, owner: Any, writes: tuple[str, ...], reads: tuple[str, ...]) -> None:
        context = self.context
        taken = [context.wrap(owner, n, around(context, self.writing(n), self.written, self.failed)) for n in writes]
        for name in reads:
            context.wrap(owner, name, around(context, self.opens, self.read, self.failed))
        if any(taken):
            context.hook_installed("save")

    def writing(self, name: str) -> Callable[..., Optional[tuple[int, str]]]:
        """Return what begins to write a checkpoint with the function `name`."""

        def opens(*args: Any, **kwargs: Any) -> Optional[tuple[int, str]]:
            state, known = self.opens(*args, **kwargs), self.context.script_checkpoints
            if state is not None and known is not None and state[1]:
                try:
                    known.begins(state[1], name, (*args, *kwargs.values()))
                except Exception as error:  # a full disk, say
                    self.context.surprise("noting a save of the script", error)
            return state

        return opens

    def opens(self, *args: Any, **kwargs: Any) -> Optional[tuple[int, str]]:
        """Begin a checkpoint; nested calls are part of it.  Return the phase before it, and where it is."""
        beats = self.beats
        if beats.saving or not beats.is_training_thread():
            return None
        beats.saving = True
        return beats.enter(CHECKPOINT), self.path_of(*args, **kwargs)

    def path_of(self, *args: Any, **kwargs: Any) -> str:
        """Return the path of a checkpoint, the first among the arguments; "" if it has none."""
        found = [one for one in (*args, *kwargs.values()) if isinstance(one, (str, os.PathLike))]
        return str(os.fspath(found[0])) if found else ""

    def written(self, state: tuple[int, str], result: Any) -> None:
        """Count a written checkpoint."""
        self.failed(state)
        self.context.add("saves")
        if self.context.script_checkpoints is not None and state[1]:
            self.context.script_checkpoints.wrote(state[1])

    def read(self, state: tuple[int, str], result: Any) -> None:
        """End the reading of a checkpoint."""
        self.failed(state)
        if self.context.script_checkpoints is not None and state[1]:
            self.context.script_checkpoints.opened(state[1])

    def failed(self, state: tuple[int, str]) -> None:
        """End the call, with or without a checkpoint; the optimizer's counter can have jumped."""
        self.beats.saving = False
        self.beats.restores += 1
        self.beats.leave(state[0])
