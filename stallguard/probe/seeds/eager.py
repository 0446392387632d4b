"""TensorFlow's eager operations and generators without a seed.

An operation takes its seed as an attribute, and TensorFlow keeps a kernel for each set of attributes: a separate seed
for each call costs 36 to 46 kB and about 1 ms (measured on 2.15 and 2.21).  So a call without a seed is replaced by its
stateless counterpart, which takes the seed as an input: no additional kernel, 30 to 40 microseconds, the same
distribution.

Operations in a graph stay random: with a fixed seed each replica, and each epoch of a pipeline, would draw the same
numbers.  The hello names them once.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ..context import Context
    from ..kept_seeds import Seeds

    Call = Callable[..., Any]

PHILOX = 1  # TensorFlow's number of the algorithm that the stateful operations use
# Operation: (its stateless counterpart, number of its inputs).
BY_KEY = {
    "random_uniform": ("stateless_random_uniform_v2", 2),
    "random_standard_normal": ("stateless_random_normal_v2", 2),
    "truncated_normal": ("stateless_truncated_normal_v2", 2),
    "random_uniform_int": ("stateless_random_uniform_int_v2", 3),
    "random_shuffle": ("stateless_shuffle", 1),
}
BY_SEED = {"multinomial": ("stateless_multinomial", 2)}
NOT_KEPT = {"random_gamma": 2, "random_poisson_v2": 2, "parameterized_truncated_normal": 5}
# Callers that draw in a graph and are reported elsewhere, when training begins: pipelines, and layers of Keras 2.
SAID = ("tensorflow.python.data.", "keras.src.backend", "tf_keras.src.backend", "keras.backend")
DRAWN_ANEW = "%s without a seed draws different numbers in each attempt"
IN_GRAPH = "a random operation in a tf.function"


def patch_operations(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed the operations of `module`, TensorFlow's gen_random_ops."""
    eager = Eager(context, seeds)
    for name, (counterpart, inputs) in BY_KEY.items():
        context.wrap(module, name, eager.maker(name, inputs, partial(_by_key, counterpart)))
    for name, (counterpart, inputs) in BY_SEED.items():
        context.wrap(module, name, eager.maker(name, inputs, partial(_by_seed, counterpart)))
    for name, inputs in NOT_KEPT.items():
        context.wrap(module, name, eager.maker(name, inputs, None))


def patch_generators(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed `tf.random.Generator.from_non_deterministic_state` and the global generator."""

    def make(original: Call) -> Call:
        def non_deterministic_ints(shape: Any, dtype: Any = "int64") -> Any:
            if len(shape) == 1 and dtype == "int64" and _executes_eagerly():  # the state of a generator
                drawn = seeds.draw("tensorflow.generator", 64 * shape[0])
                if drawn is not None:
                    return _tensor(drawn, dtype, shape[0])
            return original(shape, dtype)

        return non_deterministic_ints

    context.wrap(module, "non_deterministic_ints", make)


class Eager:
    """Seeds the calls of operations that have no seed."""

    def __init__(self, context: Context, seeds: Seeds) -> None:
        self._context = context
        self._seeds = seeds
        self._in_graph = False

    def maker(self, name: str, inputs: int, kept: Call | None) -> Callable[[Call], Call]:
        """Return a maker of the wrapper of operation `name`.  `kept(seed, *inputs, **attributes)` calls it with a seed.

        `kept` is None for an operation without a stateless counterpart.
        """

        def make(original: Call) -> Call:
            def operation(*args: Any, seed: Any = 0, seed2: Any = 0, **named: Any) -> Any:
                if not seed and not seed2 and len(args) <= inputs:  # more: the seed is one of them
                    drawn = self._draw(name, kept is not None and len(args) == inputs)
                    if drawn is not None and kept is not None:
                        try:
                            return kept(drawn, *args, **named)
                        except Exception:  # wrong arguments: the operation itself raises the better error
                            self._context.beyond(DRAWN_ANEW % name)
                return original(*args, seed=seed, seed2=seed2, **named)

            return operation

        return make

    def _draw(self, name: str, can_be_kept: bool) -> int | None:
        """Return a seed for a call of operation `name`, None if the call stays random, which is reported."""
        if _executes_eagerly():
            if can_be_kept:
                return self._seeds.draw("tensorflow", 192)
            self._context.beyond(DRAWN_ANEW % name)
            return None
        if self._in_graph:
            return None  # reported already
        frame: Any = sys._getframe(1)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).startswith(SAID):
                return None  # reported when training begins
            frame = frame.f_back
        self._in_graph = True
        self._context.beyond(DRAWN_ANEW % IN_GRAPH)
        return None


def _by_key(counterpart: str, drawn: int, first: Any, *rest: Any, **named: Any) -> Any:
    module = _module("ops.gen_stateless_random_ops_v2")
    key, counter = _tensor(drawn & 2**64 - 1, "uint64", 1), _tensor(drawn >> 64, "uint64", 2)
    return getattr(module, counterpart)(first, key, counter, PHILOX, *rest, **named)


def _by_seed(counterpart: str, drawn: int, *inputs: Any, **named: Any) -> Any:
    module = _module("ops.gen_stateless_random_ops")
    return getattr(module, counterpart)(*inputs, _tensor(drawn >> 64, "int64", 2), **named)


def _tensor(bits: int, dtype: Any, size: int) -> Any:
    numpy = sys.modules["numpy"]
    width = numpy.dtype(dtype).itemsize
    array = numpy.frombuffer(bits.to_bytes(size * width, "little"), dtype)
    return _module("framework.constant_op").constant(array)


def _executes_eagerly() -> bool:
    return bool(_module("eager.context").executing_eagerly())


def _module(name: str) -> Any:
    return sys.modules["tensorflow.python." + name]
