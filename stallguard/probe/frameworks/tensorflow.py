"""TensorFlow: calls of its graphs, their tracing and first run; tapes, sessions, its input, and its random numbers.

Python functions of the script that run inside a graph (mapped functions, generators, losses) run for milliseconds in
threads of TensorFlow and hold the interpreter's lock, so the sampler hardly ever sees them: it gets the lock when they
end.  `PythonFunctions` measures each call, at the price of two readings of the clock.  The sums are in
`Context.python_functions`; the sampler writes them with its stacks.

An eager operation without a seed takes its seed as an attribute, and TensorFlow keeps a kernel for each set of
attributes: a separate seed for each call costs 36 to 46 kB and about 1 ms (measured on 2.15 and 2.21).  So a call
without a seed is replaced by its stateless counterpart, which takes the seed as an input (`EagerSeeds`): no additional
kernel, 30 to 40 microseconds, the same distribution.  Operations in a graph stay random: with a fixed seed each
replica, and each epoch of a pipeline, would draw the same numbers.  The hello names them once.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from .. import patches
from ..beats import FUNCTION, INPUT, SESSION, TAPE, TRACING, monotonic_ns
from ..hooks import SaveHooks, around
from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any, Callable, Optional

    from ..context import Context, Targets
    from ..patches import Maker

    Call = Callable[..., Any]

WRAPPER = "ag_dnc_wrapper__"  # attribute that tf.py_function gives the script's function
POLYMORPHIC = "tensorflow.python.eager.polymorphic_function.polymorphic_function"
CONCRETE = "tensorflow.python.eager.polymorphic_function.concrete_function"
OLD_POLYMORPHIC = "tensorflow.python.eager.def_function"  # before 2.10
OLD_CONCRETE = "tensorflow.python.eager.function"
GRAPHS = "tensorflow.python.framework.func_graph"
STACKS = "tensorflow.python.util.tf_stack"
SAVES = {
    "tensorflow.python.checkpoint.checkpoint": ("Checkpoint", "save write", "restore read"),
    "tensorflow.python.training.tracking.util": ("Checkpoint", "save write", "restore read"),
    "tensorflow.python.checkpoint.checkpoint_management": ("CheckpointManager", "save", ""),
    "tensorflow.python.training.checkpoint_management": ("CheckpointManager", "save", ""),
    "tensorflow.python.training.saver": ("Saver", "save", "restore"),
    "tensorflow.python.saved_model.save": ("", "save", ""),
}
INPUT_FUNCTION, STEP_FUNCTION = "input", "step"  # what a script's function works for
_PIPELINE = "data/ops/structured_function.py"  # TensorFlow traces the functions of a pipeline here
_TENSORFLOW = "/tensorflow/python/"  # its own functions, as around a generator
MOST = 1000  # functions that are measured, the newest
DEPTH = 100  # frames in which the tracing of a pipeline is searched
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


def targets(context: Context) -> Targets:
    """Return the modules that define tf.function's classes, the tracer, tapes, sessions and the input pipeline."""
    functions, inputs = FunctionHooks(context), InputHooks(context)
    return {
        "tensorflow.python.ops.script_ops": PythonFunctions(context).patch,
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
        files, outermost = patches.files(), module.SentinelFilter
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
        if self.beats.tracing or not self.beats.is_training_thread():
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
        if not (self.beats.is_training_thread() and self.eager()):
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
                    self.context.note("feed", "a tf.data.Dataset takes from a generator", feed="from_generator")
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
        @patches.yielding  # TensorFlow writes the traceback into the message of an error of its own
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
                return INPUT_FUNCTION, function
            frame = frame.f_back
        return STEP_FUNCTION, function

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


def seed_operations(context: Context, module: Any) -> None:
    """Seed the operations of `module`, TensorFlow's gen_random_ops."""
    eager = EagerSeeds(context)
    for name, (counterpart, inputs) in BY_KEY.items():
        context.wrap(module, name, eager.maker(name, inputs, partial(_by_key, counterpart)))
    for name, (counterpart, inputs) in BY_SEED.items():
        context.wrap(module, name, eager.maker(name, inputs, partial(_by_seed, counterpart)))
    for name, inputs in NOT_KEPT.items():
        context.wrap(module, name, eager.maker(name, inputs, None))


def seed_generators(context: Context, module: Any) -> None:
    """Seed `tf.random.Generator.from_non_deterministic_state` and the global generator."""

    def make(original: Call) -> Call:
        def non_deterministic_ints(shape: Any, dtype: Any = "int64") -> Any:
            if len(shape) == 1 and dtype == "int64" and _executes_eagerly():  # the state of a generator
                drawn = context.draw("tensorflow.generator", 64 * shape[0])
                if drawn is not None:
                    return _tensor(drawn, dtype, shape[0])
            return original(shape, dtype)

        return non_deterministic_ints

    context.wrap(module, "non_deterministic_ints", make)


class EagerSeeds:
    """Seeds the calls of operations that have no seed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._in_graph = False

    def maker(self, name: str, inputs: int, kept: Optional[Call]) -> Callable[[Call], Call]:
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

    def _draw(self, name: str, can_be_kept: bool) -> Optional[int]:
        """Return a seed for a call of operation `name`, None if the call stays random, which is reported."""
        if _executes_eagerly():
            if can_be_kept:
                return self._context.draw("tensorflow", 192)
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


def constant(array: Any) -> Any:
    """Return a tensor with the values of an array."""
    return sys.modules["tensorflow"].constant(array)


def hide_gpu(context: Context, module: Any) -> None:
    """Hide the GPU: only a call of TensorFlow's own hides pluggable devices (Metal)."""
    module.config.set_visible_devices([], "GPU")
    context.note("device", "the GPU is hidden from TensorFlow for this attempt")


def globally_seeded() -> bool:
    """Return whether the script has set TensorFlow's global seed."""
    context = sys.modules.get("tensorflow.python.eager.context")
    return context is not None and context.global_seed() is not None


def global_generator() -> Any:
    """Return the generator of tf.random.get_global_generator(), None if it was not made."""
    return getattr(sys.modules.get("tensorflow.python.ops.stateful_random_ops"), "global_generator", None)


def _eager_generator() -> Any:
    module = sys.modules.get("tensorflow.python.eager.context")
    return getattr(module.context() if module else None, "_rng", None)


def _eager_state() -> Any:
    generator = _eager_generator()
    return generator.getstate() if generator else None


def _set_eager_state(state: Any) -> None:
    generator = _eager_generator()
    if generator:
        generator.setstate((state[0], tuple(state[1]), state[2]))


def _state() -> Any:
    generator = global_generator()
    return None if generator is None else generator.state.numpy()


def _set_state(state: Any) -> None:
    generator = global_generator()
    if generator is not None and tuple(generator.state.shape) == tuple(state.shape):
        generator.state.assign(state)


def _is_tensor(value: Any) -> bool:
    # Of a table or a pipeline it is a handle, without a value.
    return type(value).__name__ == "EagerTensor" and value.dtype.name not in ("resource", "variant")


def is_table(value: Any) -> bool:
    """Return whether a value is a lookup table that can be changed."""
    # DenseHashTable shows its free buckets, too, and is named.
    kind = type(value)
    return kind.__name__ == "MutableHashTable" and kind.__module__.startswith("tensorflow.")


def is_constant_table(value: Any) -> bool:
    """Return whether a value is a lookup table that is filled when it is made, and never changed."""
    return any(one.__name__ == "InitializableLookupTableBase" for one in type(value).__mro__)


def entries_of(table: Any) -> tuple[Any, Any]:
    """Return (keys, values) of a lookup table as arrays, in the order of the keys."""
    keys, values = (one.numpy() for one in table.export())
    order = sys.modules["numpy"].argsort(keys, kind="stable")
    return keys[order], values[order]


def fill(table: Any, keys: Any, values: Any) -> None:
    """Give a lookup table these entries alone."""
    table.remove(table.export()[0])
    table.insert(constant(keys), constant(values))


def variable_of(array: Any, is_trained: bool) -> Any:
    """Return a variable with the values of an array."""
    dtype = None if array.dtype.hasobject else array.dtype.name  # of texts TensorFlow finds it
    return sys.modules["tensorflow"].Variable(array, trainable=is_trained, dtype=dtype)


def _has_peers() -> bool:
    return "tensorflow" in sys.modules and '"worker"' in os.environ.get("TF_CONFIG", "")


LIBRARY = Library(
    "tensorflow",
    trains=True,
    hooks=(targets, lambda context: SaveHooks(context, SAVES).targets()),
    patches={
        "seeds": {
            "tensorflow.python.ops.gen_random_ops": seed_operations,
            "tensorflow.python.ops.stateful_random_ops": seed_generators,
        },
        "trackers": {"tensorflow.python.ops.summary_ops_v2": ("trackers", "patch_writer")},
        "device": {"tensorflow": hide_gpu},
        "checkpoint": {
            "tensorflow.python.data.ops.dataset_ops": ("checkpoint.fit_session", "patch_datasets"),
            "tensorflow.python.data.ops.shuffle_op": ("checkpoint.keras_hooks", "patch_shuffle"),
        },
    },
    array_waits=("cpu", "numpy", "_numpy", "_numpy_internal"),
    has_peers=_has_peers,
    stateless=(
        "DatasetV2", "IteratorSpec",  # the definition of a pipeline; its functions are walked, no iterator is state
        "DType",  # a constant
        "StrategyBase", "Generator",  # their variables are walked
        "InitializableLookupTableBase",  # filled when it is made, never changed
        "PolymorphicFunction", "ConcreteFunction", "AutoTrackable",  # their variables are found by themselves
    ),
    is_tensor=_is_tensor,
    is_fixed=True,
    distributions=(
        "tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly", "tensorflow-metal", "tensorflow-metal-plugin",
    ),
    runs_keras=True,
    tensor_of=lambda array, _existing: constant(array),
    variable_of=variable_of,
    generators={"eager": (_eager_state, _set_eager_state), "tensorflow": (_state, _set_state)},
)  # fmt: skip
