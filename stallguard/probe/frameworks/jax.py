"""JAX: a call of a function of jax.jit that updates by an optimizer is a batch; Keras' own loop counts itself.

Such a function runs in Python only while JAX traces it: so does the update of optax (which Flax and Haiku call), of
Equinox, or of a Keras optimizer.  It shows which function is a step.  From then on JAX calls compiled code without any
Python.  What shows these calls is sys.monitoring of Python 3.12: the events of a call, and of the return from a
function in C, are on from the import of optax.  A call place has its events switched off by the first call of anything
that is not of jax.jit; the first event of each costs 0.3 microseconds, 25,000 of them a Flax training that begins.

The return counts, so a call that fails or hangs is no batch.  One call is one batch, also if it has many updates
(lax.scan): how many is not known.  A step that is part of the trace of another is none.  An update that is not traced
is a batch of its own.  Functions are known by what the script gave to jax.jit: JAX does not trace that anew if it is
given once more.

Of what `lower().compile()` returns, the call by its class is seen; it is known by the name of the function.

Of `self.step(*batch)` Python shows no return if the method itself is what was compiled: the instruction after such a
call counts.  Before Python 3.12 a loop calls stallguard.beat(); the supervisor says so (core/advisories.py).
"""

from __future__ import annotations

import os
import sys

from .. import libraries, loop_names, patches, wire
from ..beats import OPTIMIZER, STEP
from ..hooks import own_classes
from ..libraries import Library
from ..raised import RaisedErrors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Optional

    from ..context import Context, Targets
    from ..patches import Function

TOOLS = (4, 3)  # numbers of sys.monitoring that no kind of tool has as its own
LOOKS = 3  # for the names of the state: the first trace of a step can be that of a trial
MOST_ITEMS = 1000  # of a container that can be a state; a longer one is data
_HOOKS = wire.SLOT["hooks"]
_TREES = (dict, list, tuple)
_WITH_STATE = ("optax.", "flax.training.")


def targets(context: Context) -> Targets:
    """Return the modules that define the error of a device, and the updates of optimizers."""
    steps = JitSteps(context)
    return {
        "jax.errors": lambda module: RaisedErrors(context).watch(getattr(module, "JaxRuntimeError", None)),
        "optax._src.update": steps.patch_updates,
        "equinox._update": steps.patch_updates,
        "keras.src.optimizers.base_optimizer": steps.patch_keras,
    }


class JitSteps:
    """Counts the updates of optimizers: those that run now, and the calls of functions in whose trace one took part."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.beats = context.beats
        self._begun = False
        self._tool: Optional[int] = None  # its number
        self._names = StateNames(context)
        self._jitted: Any = None  # the class of what jax.jit returns
        self._partial: Any = None
        self._is_outside: Any = None  # whether no function is being traced in this thread
        self._steps: dict[int, Any] = {}  # weak references to the functions with an update, by id()
        self._named: set[str] = set()  # what JAX calls them once they are compiled
        self._places: dict[tuple[int, int], CodeType] = {}  # where the script calls them: code and instruction
        # Calls of compiled methods with `*`, the newest of each code: its instruction, and what is called.
        self._spread: dict[int, tuple[int, Any]] = {}
        self._spreading: set[CodeType] = set()  # code with such calls

    def patch_updates(self, module: Any) -> None:
        """Wrap what adds an optimizer's updates to the parameters."""
        if self.context.wrap(module, "apply_updates", self.update):
            self.context.hook_installed("optimizer")
            self.begin()

    def patch_keras(self, module: Any) -> None:
        """Wrap the update of a Keras optimizer that a loop of the script's own traces."""
        for kind in own_classes(module, "stateless_apply"):
            self.context.wrap(kind, "stateless_apply", self.update)

    def update(self, original: Function) -> Function:
        """Return the wrapper for an update."""

        @patches.removes_its_own
        def update(*args: Any, **named: Any) -> Any:
            try:
                if self._names.left and args and not self.beats.fitting:
                    self._names.look(args[0], sys._getframe(1))
            except Exception as error:
                self.context.surprise("names of jax", error)
            try:
                result = original(*args, **named)
            except BaseException as error:
                patches.remove(error)
                raise
            try:
                if not self.beats.fitting:
                    self.updated()
            except Exception as error:
                self.context.surprise("jax update", error)
            return result

        return update

    def updated(self) -> None:
        """Count an update that runs now; of one that is traced, note the functions of jax.jit around it."""
        self.begin()
        if self._is_outside is None:
            return
        if self._is_outside():
            self.stepped()
        elif self._jitted is not None:
            self.note_functions(sys._getframe(1))

    def stepped(self) -> None:
        """Count a batch."""
        self.beats.step_ends(OPTIMIZER, STEP)

    def begin(self) -> None:
        """Switch on the events of calls, once, if this Python has them and a number of its tools is free."""
        if self._begun:
            return
        self._begun = True
        self._is_outside = getattr(sys.modules.get("jax._src.core"), "trace_state_clean", None)
        if not hasattr(sys, "monitoring") or self._is_outside is None:
            return
        self._jitted = type(sys.modules["jax"].jit(lambda: None))
        self._partial = sys.modules["functools"].partial
        if self.context.patches.also(self.end, self.listen) and self._tool is None:
            self.context.note("jax", "steps of jax.jit need stallguard.beat(): others use sys.monitoring")
        if self._tool is None:
            self._jitted = None

    def listen(self) -> None:
        """Switch on the events of calls, if a number is free."""
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        self._tool = tool = next((number for number in TOOLS if monitoring.get_tool(number) is None), None)
        if tool is not None:
            monitoring.use_tool_id(tool, "stallguard")
            events = monitoring.events
            monitoring.register_callback(tool, events.CALL, self.watch(monitoring.DISABLE))
            monitoring.register_callback(tool, events.C_RETURN, self.returns())
            monitoring.register_callback(tool, events.INSTRUCTION, self.follows(monitoring.DISABLE))
            monitoring.set_events(tool, events.CALL)

    def end(self) -> None:
        """Switch the events off, and free the number."""
        tool, self._tool = self._tool, None
        if tool is not None:
            monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
            monitoring.set_events(tool, 0)
            self._spread.clear()
            while self._spreading:
                monitoring.set_local_events(tool, self._spreading.pop(), 0)
            for event in (monitoring.events.CALL, monitoring.events.C_RETURN, monitoring.events.INSTRUCTION):
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

    def watch(self, never_again: Any) -> Any:
        """Return what runs before each call: it switches off the events of a place that calls nothing of jax.jit."""
        jitted, partial, method, places = self._jitted, self._partial, type(self.begin), self._places

        def called(code: CodeType, at: int, function: Any, _first: Any) -> Any:
            kind = type(function)
            if kind is jitted:
                return None
            inner = function.__func__ if kind is method else function.func if kind is partial else None
            if type(inner) is not jitted:
                return None if (id(code), at) in places else never_again
            if kind is method:
                self.follow(code, at, inner)
            return None

        return called

    def follow(self, code: CodeType, at: int, function: Any) -> None:
        """Have the instruction after this call of a compiled method count, if the call is one with `*`."""
        from opcode import opmap

        try:
            if code.co_code[at] == opmap["CALL_FUNCTION_EX"]:
                self._spread[id(code)] = at, function
                if code not in self._spreading:
                    self._spreading.add(code)
                    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
                    monitoring.set_local_events(self._tool, code, monitoring.events.INSTRUCTION)
        except Exception as error:
            self.end()
            self.context.surprise("jax method", error)

    def follows(self, never_again: Any) -> Any:
        """Return what runs before an instruction of code that calls a compiled method with `*`."""
        spread = self._spread
        ends: set[tuple[int, int]] = set()

        def follows(code: CodeType, at: int) -> Any:
            began, function = spread.get(id(code), (at, None))
            # The next one, behind a cache that an instruction can have; a handler of errors is further away.
            if not began < at <= began + 4:
                return None if (id(code), at) in ends else never_again
            ends.add((id(code), at))
            del spread[id(code)]
            self.ended(function, sys._getframe(1))
            return None

        return follows

    def returns(self) -> Any:
        """Return what runs after each call of a function in C at a place that is watched."""
        jitted, partial = self._jitted, self._partial

        def returned(_code: CodeType, _at: int, function: Any, _first: Any) -> None:
            if type(function) is partial:
                function = function.func
            if type(function) is jitted:
                self.ended(function, sys._getframe(1))

        return returned

    def ended(self, function: Any, frame: FrameType) -> None:
        """Count a call of a function of jax.jit that has ended, in `frame`, if it is a step."""
        try:
            given = getattr(function, "__wrapped__", None)
            known = self._steps.get(id(given))
            is_step = known is not None and known() is given
            if not is_step and (given is not None or not self._is_compiled_step(frame)):
                return
            if self._is_outside():
                self.stepped()
            else:  # JAX has its trace already, and the update is not called for that of the function around it
                self.note_functions(frame)
        except Exception as error:
            self.end()
            self.context.surprise("jax step", error)

    def _is_compiled_step(self, frame: FrameType) -> bool:
        """Return whether `frame` is the call of what `lower().compile()` made of a step, which has only its name."""
        compiled = frame.f_locals.get("self") if frame.f_code.co_name == "__call__" else None
        name = getattr(getattr(getattr(compiled, "_executable", None), "unsafe_call", None), "name", "")
        return name in self._named

    def note_functions(self, frame: Optional[FrameType]) -> None:
        """Note the functions of jax.jit that are being traced in the stack of `frame`, and where they are called."""
        from weakref import ref

        jit = sys.modules["jax._src.pjit"].__file__
        library = os.path.join(os.path.dirname(str(sys.modules["jax"].__file__)), "")
        is_new = is_called = is_place = False
        while frame is not None:
            code = frame.f_code
            if code.co_filename == jit and "fun" in (*code.co_varnames, *code.co_freevars):
                is_place = code.co_name == "cache_miss"  # else it is only lowered
                is_called = is_called or is_place
                given = frame.f_locals.get("fun")
                known = self._steps.get(id(given))
                if known is None or known() is not given:
                    self._steps[id(given)] = ref(given)
                    self._named.add("jit(%s)" % getattr(getattr(given, "func", given), "__name__", ""))
                    is_new = True
            elif is_place and not code.co_filename.startswith(library):
                self._places[id(code), frame.f_lasti] = code
                is_place = False
            frame = frame.f_back
        if is_called and self.beats.is_training_thread():
            self.beats.trace_ends(STEP)
        if is_new:
            sys.monitoring.restart_events()  # type: ignore[attr-defined]  # a place can have called other things before


class StateNames:
    """Finds what the script calls the state that an update changes, for the lines that would have its loop resumed.

    Parameters have no class of their own.  In the stack of an update are the arrays that the script gave to jax.jit,
    or the parameters themselves.  A variable of the script is such a state if its arrays are all among these, and its
    structure is that of the parameters, or has parts of an optimizer's state.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.left = LOOKS  # until the names are found

    def look(self, params: Any, frame: FrameType) -> None:
        """Note the lines for the loop in the stack of `frame`, in which `params` are updated."""
        beats = self._context.beats
        if beats.slots[_HOOKS] & loop_names.SAVED or not beats.is_training_thread():
            return
        self.left -= 1
        with self._context.own_work():
            found, taken, loaders = self._names(params, frame)
        if found or self.left == LOOKS - 1:
            self._context.note("loop", "", lines=loop_names.lines_of_values(found, taken, loaders))
        if found:
            self.left = 0

    def _names(self, params: Any, frame: Optional[FrameType]) -> tuple[list[str], list[str], list[str]]:
        """Return the names of the state, all others, and those of loaders in the outermost function that has any."""
        trees = sys.modules["jax"].tree_util
        call, at = None, frame
        while at is not None:
            if at.f_code.co_name == "cache_miss" and at.f_code.co_filename == sys.modules["jax._src.pjit"].__file__:
                call = at
            at = at.f_back
        given = None if call is None else [call.f_locals.get(name) for name in ("args", "kwargs")]
        look = StateLook(params, None if given is None else trees.tree_leaves(given)).of
        names: tuple[list[str], list[str], list[str]] = ([], [], [])
        at = frame if call is None else call
        while at is not None:
            if not libraries.is_librarys(at.f_code.co_filename):
                seen = loop_names.variables(at, look)
                states = [(*found, name) for name, found in seen if found is not None and _is_state(name, found[0])]
                if any(kind <= OPTIMIZER_STATE for kind, _, _ in states):
                    states.sort(key=lambda one: one[0])
                    own = [name for _, held, name in states if not any(held < more for _, more, _ in states)]
                    of_loaders = loop_names.variables(at, loop_names.kind_of)
                    loaders = [name for name, kind in of_loaders if kind == loop_names.LOADER]
                    names = (own, [name for name, _ in seen if name not in own], loaders)
            at = at.f_back
        return names


PARAMETERS, OPTIMIZER_STATE, OTHER, KEY = range(4)  # in the order in which they are named


def _is_state(name: str, kind: int) -> bool:
    """Return whether a variable is a state: of what is neither known nor a batch, the name decides (batch_stats)."""
    return name[0] != "_" and (kind != OTHER or "stat" in name)


class StateLook:
    """What a variable of the script is to an update."""

    def __init__(self, params: Any, given: Optional[list[Any]]) -> None:
        """`given`: the leaves of what the script gave to jax.jit; None: the update is not in such a call."""
        self._trees = sys.modules["jax"].tree_util
        leaves, self._structure = self._trees.tree_flatten(params)
        self._shapes = [getattr(one, "shape", None) for one in leaves]
        self._is_call = given is not None
        self._arrays = {id(one) for one in (leaves if given is None else given)}

    def of(self, value: Any) -> Optional[tuple[int, set[int]]]:
        """Return what a value is, and the id() of its arrays; None if it is no state."""
        array = sys.modules["jax"].Array
        if isinstance(value, array):
            is_raw = str(value.dtype) == "uint32" and value.shape in ((2,), (4,))  # a key without a type of its own
            return (KEY, {id(value)}) if is_key(value) or is_raw else None
        if type(value).__module__ == "builtins" and (not isinstance(value, _TREES) or len(value) > MOST_ITEMS):
            return None
        kinds: list[Any] = []
        try:
            leaves, structure = self._trees.tree_flatten(value, is_leaf=lambda one: kinds.append(type(one)))
            held = {id(one) for one in leaves if isinstance(one, array)}
            is_given = bool(held) and held <= self._arrays
            is_like_params = structure == self._structure and self._shapes == [
                getattr(x, "shape", None) for x in leaves
            ]
        except Exception:  # of keys that cannot be sorted, or structures that cannot be compared
            return None
        if is_given and is_like_params:
            return PARAMETERS, held
        modules = [kind.__module__ for one in kinds for kind in one.__mro__]
        if any(one.startswith("flax.nnx") for one in modules):  # loop_names.py knows these by their class
            return None
        if held and any(one.startswith(_WITH_STATE) for one in modules) and (is_given or not self._is_call):
            return OPTIMIZER_STATE, held
        return (OTHER, held) if is_given and self._is_call else None


def is_key(value: Any) -> bool:
    """Return whether a value is a key of jax.random, which has a type of its own."""
    return type(value).__name__ == "PRNGKeyArray" and type(value).__module__.startswith("jax.")


def data_of_key(key: Any) -> tuple[str, Any]:
    """Return (its kind, its numbers as an array) of a key."""
    random = sys.modules["jax"].random
    return str(random.key_impl(key)), sys.modules["numpy"].asarray(random.key_data(key))


def key_of(kind: str, data: Any) -> Any:
    """Return the key that `data_of_key` read."""
    return sys.modules["jax"].random.wrap_key_data(data, impl=kind)


def is_on_gpu(value: Any) -> bool:
    """Return whether a value is an array of JAX in the memory of a GPU: reading it makes a copy."""
    devices = getattr(value, "devices", None)
    return callable(devices) and all(one.platform != "cpu" for one in devices())


def _is_tensor(value: Any) -> bool:
    return hasattr(type(value), "__array__") and hasattr(value, "shape") and not is_key(value)


def _tensor_of(array: Any, _existing: Any) -> Any:
    return sys.modules["jax"].numpy.asarray(array)


def _has_peers() -> bool:
    distributed = sys.modules.get("jax._src.distributed")
    return distributed is not None and (distributed.global_state.num_processes or 1) > 1


LIBRARY = Library(
    "jax",
    trains=True,
    packages=("jax", "jaxlib"),
    companions=("flax", "optax"),
    hooks=(targets,),
    array_waits=(
        "block_until_ready",
        "batched_block_until_ready",
        "item",
        "tolist",
        "device_get",
        "__array__",
        "_value",
        "_single_device_array_to_np_array_did_copy",
    ),
    has_peers=_has_peers,
    stateless=("Device",),
    is_tensor=_is_tensor,
    is_fixed=True,
    distributions=("jax", "jaxlib", "jax-metal", "jax-mps"),
    runs_keras=True,
    tensor_of=_tensor_of,
)
