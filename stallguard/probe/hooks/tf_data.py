"""Records the wait for the next batch of tf.data in eager code, and progress of a script's generator."""

from __future__ import annotations

import sys

from .. import own_frames
from ..beats import INPUT
from ..monotonic import monotonic_ns
from .python_functions import INPUT as INPUT_FUNCTION
from .python_functions import code_of, entry
from .wrap import around

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable, Optional

    from ..context import Context, Targets


def targets(context: Context) -> Targets:
    """Return the modules that define the iterator and from_generator."""
    hooks = InputHooks(context)
    return {
        "tensorflow.python.data.ops.iterator_ops": hooks.patch_iterator,
        "tensorflow.python.data.ops.from_generator_op": hooks.patch_generator,
    }


class InputHooks:
    """The wrappers of the input pipeline."""

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
