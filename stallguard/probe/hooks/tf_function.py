"""Records calls of TensorFlow's graphs, their tracing and their first run."""

from __future__ import annotations

import sys

from .. import own_frames
from ..beats import FUNCTION, TRACING
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from ..context import Context, Targets
    from ..patches import Maker

POLYMORPHIC = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
CONCRETE = "tensorflow.python.eager.polymorphic_function.concrete_function"
OLD_POLYMORPHIC = "tensorflow.python.eager.def_function"  # before 2.10
OLD_CONCRETE = "tensorflow.python.eager.function"
GRAPHS = "tensorflow.python.framework.func_graph"
STACKS = "tensorflow.python.util.tf_stack"


def targets(context: Context) -> Targets:
    """Return the modules that define tf.function's classes and the tracer."""
    hooks = FunctionHooks(context)
    return {
        POLYMORPHIC: hooks.patch_polymorphic,
        OLD_POLYMORPHIC: hooks.patch_polymorphic,
        CONCRETE: hooks.patch_concrete,
        OLD_CONCRETE: hooks.patch_concrete,
        GRAPHS: hooks.patch_tracer,
        STACKS: hooks.patch_stacks,
    }


class FunctionHooks:
    """The wrappers of graph calls: only the outermost call counts, and only if it runs eagerly."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats

    def patch_polymorphic(self, module: Any) -> None:
        """Wrap the class behind tf.function."""
        self._patch(module, "Function", "function")

    def patch_concrete(self, module: Any) -> None:
        """Wrap the class of traced functions, which a script can call itself."""
        self._patch(module, "ConcreteFunction", "concrete")

    def _patch(self, module: Any, name: str, hook: str) -> None:
        kind = vars(module).get(name)
        if kind is None or kind.__module__ != module.__name__:
            return
        eager = sys.modules["tensorflow.python.eager.context"].executing_eagerly
        if self.context.wrap(kind, "__call__", self._caller(eager)):
            self.context.patches.may_rest(kind, "__call__")
            self.context.hook_installed(hook)

    def _caller(self, eager: Callable[[], bool]) -> Maker:
        beats = self.beats

        def opens(*args: Any, **kwargs: Any) -> Optional[int]:
            return beats.call_begins() if beats.may_open() and eager() else None

        def closes(before: int, result: Any) -> None:
            beats.call_ends(before, FUNCTION)

        return around(self.context, opens, closes, beats.call_failed)

    def patch_stacks(self, module: Any) -> None:
        """Keep the probe's frames out of the stack that TensorFlow keeps of each operation, for its errors.

        It omits the frames of the files that the outermost filter names; AutoGraph's filters add their own to them.
        """
        files, outermost = own_frames.files(), module.SentinelFilter
        self.context.wrap(outermost, "get_filtered_filenames", lambda _: lambda _filter: files)

        def updated(one: Any) -> list[Any]:
            one.update()
            return [one]

        for of_thread in module._source_filter_stacks.values():
            updated(of_thread[0])
        module._source_filter_stacks.default_factory = lambda: updated(outermost())

    def patch_tracer(self, module: Any) -> None:
        """Wrap the function that makes a graph of Python code."""
        bracket = around(self.context, self.trace_opens, self.trace_closes, self.trace_fails)
        if self.context.wrap(module, "func_graph_from_py_func", bracket):
            self.context.hook_installed("trace")
            self.context.hook_installed("first_run")

    def trace_opens(self, *args: Any, **kwargs: Any) -> Optional[int]:
        """Begin the tracing of a graph; the graphs inside it (loop bodies) are part of it."""
        if self.beats.tracing or not self.beats.mine():
            return None
        self.beats.tracing = True
        return self.beats.enter(TRACING)

    def trace_closes(self, before: int, result: Any) -> None:
        """End the tracing."""
        self.beats.tracing = False
        self.beats.trace_ends(before)

    def trace_fails(self, before: int) -> None:
        """End the tracing after the script's code raised."""
        self.beats.tracing = False
        self.beats.leave(before)
