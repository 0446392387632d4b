"""The two forms of a hook: an action before a call, and actions around one.

Only this code runs between the user's program and its library.  An exception of an action is reported and dropped, an
exception of the library is passed on.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context
    from ..patches import Function, Maker


def before(context: Context, action: Callable[..., object]) -> Maker:
    """Return a maker of a wrapper that first calls action(*the call's arguments)."""

    def make(original: Function) -> Function:
        def hooked(*args: Any, **kwargs: Any) -> Any:
            try:
                action(*args, **kwargs)
            except Exception as error:
                context.surprise(original.__name__, error)
            return original(*args, **kwargs)

        return hooked

    return make


def around(
    context: Context,
    opens: Callable[..., Any],
    closes: Callable[[Any, Any], object],
    fails: Callable[[Any], object],
) -> Maker:
    """Return a maker of a wrapper that calls actions before and after the call.

    opens(*the call's arguments) returns a state, or None to ignore this call.  After the call comes
    closes(state, result), or fails(state) if it raised.
    """

    def make(original: Function) -> Function:
        def attempt(action: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            try:
                return action(*args, **kwargs)
            except Exception as error:
                context.surprise(original.__name__, error)
                return None

        def hooked(*args: Any, **kwargs: Any) -> Any:
            state = attempt(opens, *args, **kwargs)
            if state is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                attempt(fails, state)
                raise
            attempt(closes, state, result)
            return result

        return hooked

    return make


def keras_backend() -> str:
    """Return the backend of the Keras that is being imported; Keras 2 has only TensorFlow."""
    config = sys.modules.get("keras.src.backend.config")
    choose = getattr(config, "backend", None)
    return str(choose()) if callable(choose) else "tensorflow"


def own_classes(module: Any, attribute: str) -> list[Any]:
    """Return the classes that `module` itself defines and that themselves define `attribute`."""
    return [
        kind
        for kind in list(vars(module).values())
        if isinstance(kind, type) and kind.__module__ == module.__name__ and attribute in vars(kind)
    ]
