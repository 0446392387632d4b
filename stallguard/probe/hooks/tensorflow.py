"""What is recorded of TensorFlow: calls of its graphs, their tracing and first run; tapes, sessions and its input."""

from __future__ import annotations

import sys

from .. import own_frames
from ..beats import FUNCTION, INPUT, SESSION, TAPE, TRACING
from ..monotonic import monotonic_ns
from .python_functions import INPUT as INPUT_FUNCTION
from .python_functions import code_of, entry
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
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
    """Return the modules that define tf.function's classes, the tracer, tapes, sessions and the input pipeline."""
    functions, inputs = FunctionHooks(context), InputHooks(context)
    return {
        POLYMORPHIC: functions.patch_polymorphic,
        OLD_POLYMORPHIC: functions.patch_polymorphic,
        CONCRETE: functions.patch_concrete,
        OLD_CONCRETE: functions.patch_concrete,
        GRAPHS: functions.patch_tracer,
        STACKS: functions.patch_stacks,
        "tensorflow.python.eager.backprop": TapeHooks(context).patch,
        "tensorflow.python.data.ops.iterator_ops": inputs.patch_iterator,
        "tensorflow.python.data.ops.from_generator_op": inputs.patch_generator,
        "tensorflow.python.client.session": _patch_session(context),
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


class TapeHooks:
    """Counts the gradient of a tape in an eager loop as a beat, unless a better hook counts."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats

    def patch(self, module: Any) -> None:
        """Wrap GradientTape.gradient."""
        self.eager = sys.modules["tensorflow.python.eager.context"].executing_eagerly
        bracket = around(self.context, self.opens, self.closes, self.beats.call_failed)
        if self.context.wrap(module.GradientTape, "gradient", bracket):
            self.context.hook_installed("tape")

    def opens(self, *args: Any, **kwargs: Any) -> Optional[int]:
        """Begin a gradient that is computed now; not one that is traced into a graph."""
        return self.beats.call_begins() if self.beats.may_open() and self.eager() else None

    def closes(self, before: int, result: Any) -> None:
        """Count the gradient."""
        self.beats.call_ends(before, TAPE)


class InputHooks:
    """Records the wait for the next batch of tf.data in eager code, and progress of a script's generator."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._is_noted = False  # what the loop gets its batches from

    def patch_iterator(self, module: Any) -> None:
        """Wrap the `next` of a dataset's iterator in eager code; inside a graph it is not called in Python."""
        self.eager = sys.modules["tensorflow.python.eager.context"].executing_eagerly
        bracket = around(self.context, self.opens, self.closes, self.beats.leave)
        if self.context.wrap(module.OwnedIterator, "_next_internal", bracket):
            self.context.hook_installed("iterator")

    def opens(self, iterator: Any) -> Optional[int]:
        """Begin the wait for the next batch."""
        if not (self.beats.mine() and self.eager()):
            return None
        if not self._is_noted and not self.beats.fitting:
            self._is_noted = True
            self.context.note("feed", "a tf.data.Dataset feeds the loop", feed="dataset")
        return self.beats.enter(INPUT)

    def closes(self, before: int, result: Any) -> None:
        """End the wait."""
        self.beats.input_ends(before)

    def patch_generator(self, module: Any) -> None:
        """Wrap the generator that a script passes to Dataset.from_generator."""

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def from_generator(generator: Any, *args: Any, **kwargs: Any) -> Any:
                if not self.beats.fitting:  # else Keras wraps the generator that the script gave it
                    self.context.note(
                        "feed", "a tf.data.Dataset takes from a generator", feed="from_generator"
                    )
                return original(self.watched(generator), *args, **kwargs)

            return from_generator

        if self.context.wrap(module, "_from_generator", make):
            self.context.hook_installed("generator")

    def watched(self, generator: Any) -> Any:
        """Return the script's generator function, wrapped so that each element counts as progress."""
        if not callable(generator):
            return generator
        from functools import wraps

        beats, code = self.beats, code_of(generator)
        counts = [0, 0] if code is None else entry(self.context, INPUT_FUNCTION, code)

        @wraps(generator)
        @own_frames.yielding  # TensorFlow writes the traceback into the message of an error of its own
        def elements(*args: Any, **kwargs: Any) -> Iterator[Any]:
            began = monotonic_ns()
            for element in generator(*args, **kwargs):
                beats.moved()
                counts[0] += 1
                counts[1] += monotonic_ns() - began
                yield element
                began = monotonic_ns()

        return elements


def _patch_session(context: Context) -> Callable[[Any], None]:
    """Return the hook that counts each outermost Session.run of a TensorFlow 1 program as a beat."""

    def opens(*args: Any, **kwargs: Any) -> Optional[int]:
        return context.beats.call_begins() if context.beats.may_open() else None

    def closes(before: int, result: Any) -> None:
        context.beats.call_ends(before, SESSION)

    def patch(module: Any) -> None:
        if context.wrap(module.BaseSession, "run", around(context, opens, closes, context.beats.call_failed)):
            context.hook_installed("session")

    return patch
