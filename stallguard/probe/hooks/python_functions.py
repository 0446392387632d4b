"""Measures the script's Python functions that run inside TensorFlow's graphs: mapped functions, generators, losses.

They run for milliseconds in threads of TensorFlow and hold the interpreter's lock, so the sampler hardly ever sees
them: it gets the lock when they end.  Here each call is measured, at the price of two readings of the clock.  The sums
are in `Context.python_functions`; the sampler writes them with its stacks.
"""

from __future__ import annotations

import sys

from ..monotonic import monotonic_ns
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional

    from ..context import Context, Targets

INPUT, STEP = "input", "step"  # what a function works for: the input pipeline, or the training step
_PIPELINE = "data/ops/structured_function.py"  # TensorFlow traces the functions of a pipeline here
_TENSORFLOW = "/tensorflow/python/"  # its own functions, as around a generator (tensorflow.py)
MOST = 1000  # functions that are measured, the newest
DEPTH = 100  # frames in which the tracing of a pipeline is searched


def targets(context: Context) -> Targets:
    """Return the module that keeps the registry of Python functions."""
    hook = PythonFunctions(context)
    return {"tensorflow.python.ops.script_ops": hook.patch}


class PythonFunctions:
    """The wrappers of the registry."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._entries: dict[Any, Optional[list[int]]] = {}  # by token; None: not measured here

    def patch(self, module: Any) -> None:
        """Wrap the registration of a function, and its calls."""
        registry = module.FuncRegistry
        nothing = lambda _state: None  # noqa: E731 - a failed call is not counted
        self.context.wrap(registry, "insert", around(self.context, self.registers, self.registered, nothing))
        self.context.wrap(registry, "__call__", around(self.context, self.calls, self.called, nothing))

    def registers(self, _registry: Any, function: Any) -> Optional[tuple[str, Any]]:
        """Find out what a function works for: the stack of its tracing shows it."""
        frame: Optional[FrameType] = sys._getframe()
        for _ in range(DEPTH):
            if frame is None:
                break
            if frame.f_code.co_filename.endswith(_PIPELINE):
                return INPUT, function
            frame = frame.f_back
        return STEP, function

    def registered(self, state: tuple[str, Any], token: Any) -> None:
        """Make the entry of a function."""
        kind, function = state
        code = code_of(function)
        is_measured = code is not None and _TENSORFLOW not in code.co_filename
        if len(self._entries) >= MOST:  # a graph that is traced again and again registers its functions anew
            del self._entries[next(iter(self._entries))]
        self._entries[token] = entry(self.context, kind, code) if is_measured else None

    def calls(self, _registry: Any, token: Any, *_: Any) -> Optional[tuple[list[int], int]]:
        """Begin a call."""
        if isinstance(token, bytes):
            token = token.decode()
        found = self._entries.get(token)
        return None if found is None else (found, monotonic_ns())

    def called(self, state: tuple[list[int], int], _result: Any) -> None:
        """End a call."""
        found, began = state
        found[0] += 1
        found[1] += monotonic_ns() - began


def code_of(function: Any) -> Any:
    """Return the code of the script's function inside TensorFlow's and functools' wrappers; None if it has none."""
    for _ in range(8):
        inner = getattr(function, "_func", None) or getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return getattr(function, "__code__", None)


def entry(context: Context, kind: str, code: Any) -> list[int]:
    """Return the counts of a function: calls, nanoseconds."""
    key = (kind, code.co_filename, code.co_firstlineno, code.co_name)
    return context.python_functions.setdefault(key, [0, 0])
