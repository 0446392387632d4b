"""Finds every place that can hold state of a training, by following what the script's own code can reach.

A checkpoint of weights is not enough: a callback counts, a train_step anneals a coefficient, a generator draws from a
random generator of its own.  The walk begins at roots (model, callbacks, functions of the input pipeline) and follows
attributes, containers, closures, default arguments, methods of the script's classes and the globals that its functions
name.  Each place is a slot with a path; the same script has the same paths in the next attempt.

The internals of a library's objects are not followed: such an object is kept as its pickle (pickled.py), or named,
because nothing shows that it has no state.  Of a Keras model only the attributes that Keras' own code does not name are
followed, of a dataset only the script's functions, of a lock whether it is held.  An object that is reached twice is
walked once: the second slot is an alias of the first.  Nothing is changed, and nothing of the script called except
`variables` of a model or an optimizer.
"""

from __future__ import annotations

import contextvars
import functools
import gc
import io
import logging
import math
import threading
import time
import types
import weakref
from typing import TYPE_CHECKING, Any

from ..frameworks import tensorflow, torch
from . import encoding, object_kinds, pickled, tensors, variables

if TYPE_CHECKING:
    from collections.abc import Collection

PLAIN, VARIABLE, TENSOR, ALIAS, STRUCTURE = "plain", "variable", "tensor", "alias", "structure"
WHOLE, OPAQUE = "whole", "opaque"  # the first: a pickle (pickled.py)
# How a slot is reached from its holder.
ATTRIBUTE, ENTRY, CELL, CONTENT = "attribute", "entry", "cell", "content"
CONTEXT, TABLE, STATE, POSITION = "context", "table", "state", "position"
MOST = 20_000  # slots: about 0.1 s for a walk; announcements.TOO_MANY reports more
SPEED = 1e9  # bytes a second that a digest reads at least: zlib.crc32 reads 4e9 on x86-64 of 2024, its plain C 1e9
SMALL = 4096  # bytes that are always read: 10 us an array
NOT_READ = -math.inf  # a deadline, with which no arrays are read
WITHOUT_SIZE = -1  # of a pickle that was not written to its end
PICKLES = 5e7  # bytes a second that pickle writes at least, of many small objects; of arrays 1e9
PICKLED = 1 << 20  # bytes at most of a pickle that is read in a walk that reads no arrays
_STILL = (property, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_WRITERS = ("csv", "_csv")
# Dictionaries of a module of torch, which Keras' layers are there: functions that are called at each use of the layer.
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_VIEWS: tuple[Any, ...] = (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
GENERATORS = ("Generator", "SeedGenerator", "RandomGenerator")  # of TensorFlow, Keras 3 and Keras 2


class Slot:
    """One place: its `holder` and `key`, its `value`, and a `digest` of that."""

    __slots__ = ("digest", "holder", "key", "kind", "path", "value", "way")

    def __init__(self, path: str, holder: Any, key: Any, way: str, value: Any) -> None:
        self.path, self.holder, self.key, self.way, self.value = path, holder, key, way, value
        self.kind = OPAQUE
        self.digest: Any = None

    def put(self, value: Any) -> None:
        """Store another value there."""
        if self.way == CELL:
            self.holder.cell_contents = value
        elif self.way == CONTEXT:
            self.holder.set(value)
        elif self.way == TABLE:
            tensorflow.fill(self.holder, *value)
        elif self.way == POSITION:
            self.holder.seek(value)
        elif self.way == STATE:
            self.holder.load_state_dict(torch.with_tensors(value[0]))
        elif self.way == ENTRY:
            self.holder[self.key] = value
        elif isinstance(self.holder, type):
            setattr(self.holder, self.key, value)
        elif self.key not in getattr(self.holder, "__dict__", ()) and hasattr(type(self.holder), self.key):
            object.__setattr__(self.holder, self.key, value)  # a slot, also of a frozen dataclass
        else:
            vars(self.holder)[self.key] = value  # not by a library's __setattr__, which would track it


class Walk:
    """The slots under some roots, by path."""

    def __init__(self, reads: dict[str, bool] | None = None, deadline: float = math.inf) -> None:
        """`deadline`: on the monotonic clock; arrays that could not be read until then are not read.

        `reads`: by the path of each slot with arrays, whether these are read, so that each later walk does the same:
        what was read once takes as long again, and the pace of checkpoints allows for that.
        """
        self.reads: dict[str, bool] = {} if reads is None else reads
        self.deadline = deadline
        self.unread: dict[str, int] = {}  # path: bytes of what is not read, so that no change of it is seen
        self.slots: dict[str, Slot] = {}
        self.paths: dict[int, str] = {}  # of the objects that were reached, by id; this walk keeps them alive
        self.objects: dict[str, Any] = {}  # and by path
        self.optimizers: list[tuple[str, Any]] = []  # whose variables are groups of the training (fit.py)
        # Whether it is over the input pipeline: then they are slots, which belong to the opening of the data.
        self.of_pipeline = False
        self.networks: list[tuple[str, Any]] = []  # models and layers other than the fit's own
        self.modules: set[str] = set()  # with generators of the process that the script's functions name
        self.files: list[tuple[str, Any]] = []
        self.unkept: dict[str, str] = {}  # path: kind of an object whose state cannot be read
        self.sizes: dict[str, int] = {}  # bytes of what a save found changed, by path, of entries of the container
        self.complete = True
        self._classes: set[int] = set()  # by id, those whose attributes were visited
        self.shown: set[str] = set()  # paths of objects whose attributes and entries are all that they have
        self.parts: dict[str, bool] = {}  # path of what has no pickle: whether only because of objects in it
        self.inside: dict[int, tuple[str, Any]] = {}  # by id, containers in what is whole: its path, and itself

    def know(self, value: Any, path: str) -> None:
        """Register the path of an object that is handled elsewhere; the walk does not enter it."""
        self.paths.setdefault(id(value), path)
        self.objects.setdefault(path, value)

    def enter(self, value: Any, path: str) -> None:
        """Walk what is below a root."""
        if id(value) not in self.paths:
            self.know(value, path)
            self._below(value, path)

    def enter_attributes(self, value: Any, path: str, skipped: Collection[str]) -> None:
        """Walk the attributes of an object, except for names that something else keeps, and its class."""
        self.know(value, path)
        for name, item in list(vars(value).items()):
            if name not in skipped:
                self._visit("%s.%s" % (path, name), value, name, ATTRIBUTE, item)
        self._hooks(value, path)
        if not object_kinds.is_librarys(type(value)):
            self._class(type(value))

    def enter_entries(self, value: dict[str, Any], path: str, skipped: Collection[str] = ()) -> None:
        """Walk the entries of a dictionary with names, except for those that something else keeps."""
        for name, item in list(value.items()):
            if name not in skipped:
                self._visit("%s.%s" % (path, name), value, name, ENTRY, item)

    def enter_variable(self, variable: Any, path: str) -> None:
        """Add a variable as a slot of its own."""
        self._visit(path, None, None, CONTENT, variable)

    def enter_model(self, model: Any, path: str) -> None:
        """Walk the script's attributes of a model and of its own layers; their variables are handled elsewhere."""
        self.know(model, path)
        layers: list[Any] = list(getattr(model, "_flatten_layers", list)())
        for index, layer in enumerate(layers):
            self.know(layer, "%s.layer%d" % (path, index))
        for owner in [model, *layers]:
            for group in ("_parameters", "_buffers"):  # of torch: those that are not variables of Keras
                held = vars(owner).get(group) or {}
                for name, item in list(held.items()):
                    self._visit("%s.%s" % (self.paths[id(owner)], name), held, name, ENTRY, item)
            optimizer = vars(owner).get("optimizer") or vars(owner).get("_optimizer")
            if owner is not model and optimizer is not None:  # of a model in this one
                self._visit(self.paths[id(owner)] + ".optimizer", owner, None, CONTENT, optimizer)
            self._of_keras(owner, self.paths[id(owner)], is_main=owner is model)
            if owner is not model and object_kinds.is_librarys(type(owner)):
                self._loose(owner, self.paths[id(owner)])
        optimizer = getattr(model, "optimizer", None)
        inner = getattr(optimizer, "inner_optimizer", None)
        rate = getattr(inner or optimizer, "_learning_rate", None)  # a variable, or a schedule
        for name, value in (("optimizer", optimizer), ("inner", inner), ("rate", rate)):
            if value is not None and not object_kinds.is_librarys(type(value)):
                self.enter(value, "%s.%s" % (path, name))
        losses, metrics = getattr(model, "loss", None), list(getattr(model, "metrics", ()))
        for name, value in [("loss", losses), *(("metric%d" % at, one) for at, one in enumerate(metrics))]:
            for function in (value, getattr(value, "fn", None), getattr(value, "_fn", None)):
                is_named = function is None or isinstance(function, str)
                if not is_named and not _is_librarys_function(function):
                    self.enter(function, "%s.%s" % (path, name))
        compiled = getattr(model, "_compile_metrics", None) or getattr(model, "compiled_metrics", None)
        for name in ("_user_metrics", "_user_weighted_metrics"):
            for index, metric in enumerate(_leaves(getattr(compiled, name, None))):
                if object_kinds.family(metric) == "Metric":  # its variables are those of the epoch
                    self._of_keras(metric, "%s.%s%d" % (path, name, index))
                elif object_kinds.is_of_script(metric):
                    self.enter(metric, "%s.%s%d" % (path, name, index))

    def _loose(self, layer: Any, path: str) -> None:
        """Visit variables of a library's layer that are not in the model's list, such as the state of an RNN."""
        for name, held in list(vars(layer).items()):
            for index, item in enumerate(held if isinstance(held, (list, tuple)) else (held,)):
                if object_kinds.is_variable(item) and id(item) not in self.paths:
                    self._visit("%s.%s[%d]" % (path, name, index), layer, name, CONTENT, item)

    # ---- one place ------------------------------------------------------------------------------------------

    def _visit(self, path: str, holder: Any, key: Any, way: str, value: Any) -> None:
        if len(self.slots) >= MOST or path in self.slots:
            self.complete = self.complete and path in self.slots
            return
        slot = Slot(path, holder, key, way, value)
        known = self.paths.get(id(value))
        if id(value) in self.inside:  # it would come back as two
            self.unkept[self.inside[id(value)][0]] = "shared with %s" % path
        if known is not None:
            slot.kind, slot.digest = ALIAS, known
        elif object_kinds.is_variable(value) or object_kinds.is_tensor(value):
            slot.kind = VARIABLE if object_kinds.is_variable(value) else TENSOR
            # What is not read counts as changed: it holds what was trained.
            slot.digest = self._digests(path, [tensors.value_of(value)]) or object()
            self.know(value, path)
            if getattr(value, "is_leaf", False) and getattr(value, "grad", None) is not None:  # of torch
                self._visit(path + ".grad", value, "grad", ATTRIBUTE, value.grad)
        elif self._plain(slot):
            if isinstance(value, (types.FunctionType, type)):
                self.slots[path] = slot
                self.enter(value, path)
        elif object_kinds.is_interpreters(value) or object_kinds.is_probes(value) or _is_still(value):
            return
        elif object_kinds.can_be_whole(type(value)) and self._whole(slot):
            self.know(value, path)
        else:
            self.know(value, path)
            slot.kind, slot.digest = STRUCTURE, object_kinds.shape_of(value)
            self.slots[path] = slot
            self._below(value, path)
        self.slots[path] = slot

    def _plain(self, slot: Slot) -> bool:
        """Return whether the slot's value can be stored as a whole; set its digest then.

        A dictionary of names is walked like an object, so that its unchanged entries are not restored.
        """
        if object_kinds.is_record(slot.value):
            return False
        arrays: list[Any] = []
        try:
            code = encoding.encode(slot.value, arrays)
        except (encoding.NotPlain, RecursionError):  # the latter: a container that contains itself
            return False
        slot.kind = PLAIN
        if isinstance(code, (dict, list)):
            digests = self._digests(slot.path, arrays)
            if digests is None:
                self.unread[slot.path] = sum(one.nbytes for one in arrays)
            slot.digest = tensors.digest_of_code(code, digests)
        else:
            slot.digest = (type(code).__name__, repr(code))
        if isinstance(slot.value, (list, dict, set, bytearray)) or arrays:
            self.know(slot.value, slot.path)  # others can refer to it too
        return True

    def _digests(self, path: str, arrays: list[Any]) -> Any:
        """Return the digests of the arrays of one slot, each of all its bytes; None if they are not read."""
        size = sum(one.nbytes for one in arrays)
        if size > SMALL and path not in self.reads:
            self.reads[path] = time.monotonic() + size / SPEED <= self.deadline
        return [tensors.digest(one) for one in arrays] if self.reads.get(path, True) else None

    def _whole(self, slot: Slot) -> bool:
        path, value = slot.path, slot.value
        if not pickled.is_possible():
            return False
        if self.reads.get(path) is False:
            slot.kind = WHOLE
            self.unread[path] = WITHOUT_SIZE
            return True
        remaining = (self.deadline - time.monotonic()) * PICKLES
        digest = pickled.Digest(PICKLED if self.deadline == NOT_READ else max(SMALL, remaining))
        try:
            inside = pickled.write(value, digest, lambda one: id(one) in self.paths).inside
        except pickled.TooLarge:
            self.unread[path] = WITHOUT_SIZE
            if self.deadline != NOT_READ:
                self.reads[path] = False
        except pickled.NoPickle as why:
            self.parts[path] = why.parts
            return False
        else:
            self.inside.update((id(one), (path, one)) for one in inside)
            slot.digest = [digest.size, digest.check]
        slot.kind = WHOLE
        return True

    # ---- what is below --------------------------------------------------------------------------------------

    def _below(self, value: Any, path: str) -> None:
        function = getattr(value, "python_function", None)  # of a tf.function
        if isinstance(value, types.FunctionType):
            self._function(value, path)
        elif isinstance(value, types.MethodType):
            self._visit(path + ".self", value, None, CONTENT, value.__self__)
            self._visit(path + ".function", value, None, CONTENT, value.__func__)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self._visit("%s.%s" % (path, name), value, None, CONTENT, getattr(value, name))
        elif isinstance(value, (staticmethod, classmethod)):
            self._visit(path, value, None, CONTENT, value.__func__)
        elif isinstance(function, types.FunctionType):
            self._function(function, path)
        elif isinstance(value, type):
            if not object_kinds.is_librarys(value):
                self._class(value)
        elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
            if object_kinds.is_pipe(value):
                self.unkept[path] = "a pipe"
            for index, item in enumerate(value):
                self._visit("%s[%d]" % (path, index), value, index, ENTRY, item)
            self._attributes(value, path)
        elif isinstance(value, dict):
            for text, (key, item) in zip(object_kinds.texts_of_keys(value), list(value.items())):
                self._visit("%s[%s]" % (path, text), value, key, ENTRY, item)
            self._attributes(value, path)
        elif object_kinds.family(value) == "Optimizer":
            if self.of_pipeline:
                for index, variable in enumerate(variables.of_optimizer(value)):
                    self._visit("%s.variables[%d]" % (path, index), value, index, CONTENT, variable)
            else:
                self.optimizers.append((path, value))
            self._instance(value, path)
            if variables.inner_of(value) is not value:
                self._instance(variables.inner_of(value), path + ".inner")
        elif object_kinds.family(value) in ("Layer", "Metric"):
            self._network(value, path)
        elif object_kinds.family(value):
            self._instance(value, path)
        elif object_kinds.is_hash(value) or object_kinds.is_changing_array(value):
            self.unkept[path] = type(value).__name__
        elif isinstance(value, io.IOBase):
            self._file(value, path)
        elif isinstance(value, (types.GeneratorType, types.CoroutineType)) or (object_kinds.is_bare_iterator(value)):
            self.unkept[path] = type(value).__name__
        elif not self._view(value, path):
            self._object(value, path)

    def _file(self, file: Any, path: str) -> None:
        """Register an open file: of one that is read its position is state; of one that is written, its path."""
        self.files.append((path, file))
        is_known = isinstance(getattr(file, "name", None), str) or file.closed
        try:
            if not file.closed and file.readable() and not file.writable() and file.seekable():
                self._visit(path + ".position", file, None, POSITION, file.tell())
                is_known = True
        except (OSError, ValueError):  # the text layer does not show it while a loop reads the lines
            self.slots[path + ".position"] = slot = Slot(path + ".position", file, None, POSITION, file)
            slot.digest = object()  # it counts as changed
            is_known = False
        if not is_known or type(file).__module__ not in ("io", "_io", "codecs"):
            self.unkept[path] = type(file).__name__

    def _view(self, value: Any, path: str) -> bool:
        """Visit what an object of Python itself refers to or stands for; return whether it is one that does."""
        kind = type(value)
        if kind.__module__ == "multiprocessing.sharedctypes" and hasattr(value, "get_obj"):
            self._visit(path + ".value", value, None, CONTENT, value.get_obj())
        elif isinstance(value, contextvars.ContextVar):
            try:
                self._visit(path + ".value", value, None, CONTEXT, value.get())
            except LookupError:  # it has no value yet
                pass
        elif isinstance(value, (threading.local, types.ModuleType)):
            self._instance(value, path)
        elif isinstance(value, weakref.ref):
            self._visit(path + "()", value, None, CONTENT, value())
        elif isinstance(value, memoryview):
            self._visit(path + ".obj", value, None, CONTENT, value.obj)
        elif isinstance(value, _VIEWS):
            for index, one in enumerate(gc.get_referents(value)):
                self._visit("%s.of%d" % (path, index), value, None, CONTENT, one)
        elif tensorflow.is_table(value):
            self._visit(path + ".entries", value, None, TABLE, tensorflow.entries_of(value))
        elif torch.is_optimizer(value):
            for index, one in enumerate(one for group in value.param_groups for one in group["params"]):
                self._visit("%s.parameter%d" % (path, index), value, None, CONTENT, one)
            self._visit(path + ".state", value, None, STATE, (torch.with_arrays(value.state_dict()),))
        elif kind.__module__ in _WRITERS:
            for method in gc.get_referents(getattr(value, "writer", value)):
                file = getattr(method, "__self__", None)  # of `write`
                if isinstance(file, io.IOBase) and id(file) not in self.paths:
                    self.know(file, path + ".file")
                    self._file(file, path + ".file")
        elif isinstance(value, logging.Logger):  # what else it has is other loggers
            for name in ("level", "handlers", "filters", "disabled", "propagate"):
                self._visit("%s.%s" % (path, name), value, name, ATTRIBUTE, getattr(value, name))
        else:
            # An array that cannot be written to is a view of what is elsewhere.
            return object_kinds.is_lock(value) or object_kinds.is_array(value)
        return True

    def _object(self, value: Any, path: str) -> None:
        """Visit an object that has no pickle: its attributes, if these are its state; else it is named."""
        kind = type(value)
        is_scripts = not object_kinds.is_librarys(kind)
        is_all = not object_kinds.hides_state(kind)
        function = getattr(value, "__wrapped__", None)  # of what jax.jit or functools.cache makes
        is_walked = is_all and (object_kinds.is_open(kind) or self.parts.get(path))
        if is_scripts or (is_walked and not object_kinds.is_proven(kind)):
            self._instance(value, path)
        else:
            self._of_library(value, path)
            is_all = object_kinds.is_proven(kind)
            if isinstance(function, types.FunctionType):
                self._visit(path + ".__wrapped__", value, None, CONTENT, function)
                is_all = is_all or not hasattr(value, "cache_info")
        if not is_all:
            self.unkept[path] = kind.__name__
        elif is_scripts or not object_kinds.is_proven(kind):
            self.shown.add(path)

    def _of_library(self, value: Any, path: str) -> None:
        """Visit an object of a framework: its generators and variables, and the script's objects in it."""
        for name, item in list(getattr(value, "__dict__", {}).items()):
            # `_generator` holds the function that the script gave to from_generator.
            mine = name == "_generator" or not object_kinds.is_librarys(type(item))
            if mine or object_kinds.is_variable(item) or type(item).__name__ in GENERATORS:
                self._visit("%s.%s" % (path, name), value, name, ATTRIBUTE, item)

    def _network(self, value: Any, path: str) -> None:
        """Visit a model, layer or metric other than the fit's own: its variables are state too."""
        if object_kinds.family(value) == "Layer":
            self.networks.append((path, value))
        for index, variable in enumerate(list(getattr(value, "variables", ()))):
            self._visit("%s.variables[%d]" % (path, index), value, index, CONTENT, variable)
        optimizer = vars(value).get("optimizer") or vars(value).get("_optimizer")
        if optimizer is not None:
            self._visit(path + ".optimizer", value, None, CONTENT, optimizer)
        for index, one in enumerate([value, *getattr(value, "_flatten_layers", list)()]):
            self._of_keras(one, path if one is value else "%s.layer%d" % (path, index))

    def _of_keras(self, value: Any, path: str, *, is_main: bool = False) -> None:
        """Visit what the script set on an object of Keras, and its objects in it.  `is_main`: of private names too."""
        if is_main or not object_kinds.is_librarys(type(value)):
            self._instance(value, path)
        else:
            skipped = object_kinds.names_of_library(type(value))
            for name, item in list(vars(value).items()):
                is_set = name not in skipped and not name.startswith("_")
                if is_set or _is_held(value, name, item):
                    self._visit("%s.%s" % (path, name), value, name, ATTRIBUTE, item)
        self._hooks(value, path)

    def _hooks(self, value: Any, path: str) -> None:
        """Visit the script's functions that are called at each use of a layer."""
        for name in _HOOKS:
            for index, hook in enumerate((vars(value).get(name) or {}).values()):
                if object_kinds.is_of_script(hook):
                    self._visit("%s.%s[%d]" % (path, name, index), value, None, CONTENT, hook)

    def _attributes(self, container: Any, path: str) -> None:
        """Visit the attributes of a container of a class of the script, or of one in which Keras put its entries."""
        if not object_kinds.is_librarys(type(container)) or type(container).__name__ in object_kinds.TRACKED:
            self._instance(container, path)

    def _instance(self, value: Any, path: str) -> None:
        skipped = object_kinds.names_of_library(type(value))
        for name, item in list(getattr(value, "__dict__", {}).items()):
            if isinstance(name, str) and (name not in skipped or _is_held(value, name, item)):
                self._visit("%s.%s" % (path, name), value, name, ATTRIBUTE, item)
        for kind in type(value).__mro__:
            for name in object_kinds.slots_of(kind):
                if hasattr(value, name):
                    self._visit("%s.%s" % (path, name), value, name, ATTRIBUTE, getattr(value, name))
        if not object_kinds.is_librarys(type(value)):
            self._class(type(value))

    def _class(self, kind: type) -> None:
        """Visit the script's own classes: their methods name globals, and their attributes can be state."""
        for one in kind.__mro__:
            if object_kinds.is_librarys(one) or id(one) in self._classes:
                continue
            # Its path alone does not show that: it can be an attribute of another class.
            self._classes.add(id(one))
            if not object_kinds.is_librarys(type(one)):
                self._class(type(one))
            path = "class %s.%s" % (one.__module__, one.__qualname__)
            self.paths[id(one)], self.objects[path] = path, one
            for name, item in list(vars(one).items()):
                if name == "_abc_impl":  # Python's own, of an abstract class
                    continue
                if name.startswith("__") and not isinstance(item, types.FunctionType):
                    continue
                getter = item.fget if isinstance(item, property) else item
                self._visit("%s.%s" % (path, name), one, name, ATTRIBUTE, getter)

    def _function(self, function: types.FunctionType, path: str) -> None:
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or ()):
            try:
                content = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
            if name == "dispatch_cache" and function.__module__ == "functools":
                continue  # of singledispatch: what it found in its registry
            self._visit("%s<%s>" % (path, name), cell, name, CELL, content)
        positional = function.__defaults__ or ()
        named = code.co_varnames[: code.co_argcount][-len(positional) or None :]
        defaults = [*(zip(named, positional) if positional else ()), *(function.__kwdefaults__ or {}).items()]
        for name, value in defaults:
            self._visit("%s(%s)" % (path, name), function, name, CONTENT, value)
        if not object_kinds.is_users(code.co_filename):
            return
        for name, value in vars(function).items():
            if name not in ("__wrapped__", tensorflow.WRAPPER):
                self._visit("%s.%s" % (path, name), function, name, ATTRIBUTE, value)
        # The globals that it names, and the names that it uses in the script's own modules.
        space, names = function.__globals__, object_kinds.names_in(code)
        for name in sorted(names & space.keys()):
            value = space[name]
            if not isinstance(value, types.ModuleType) or object_kinds.is_made(value):
                self._global(space, str(space.get("__name__")), name, value)
            elif value.__name__ in ("random", "numpy.random"):
                self.modules.add(value.__name__)
            elif value.__name__ == "numpy" and "random" in names:
                self.modules.add("numpy.random")
            elif object_kinds.is_scripts_module(value):
                for inner in sorted(names & vars(value).keys()):
                    if not isinstance(vars(value)[inner], types.ModuleType):
                        self._global(vars(value), value.__name__, inner, vars(value)[inner])

    def _global(self, space: dict[str, Any], module: str, name: str, value: Any) -> None:
        if isinstance(value, type) and object_kinds.is_librarys(value):
            return
        if isinstance(value, types.FunctionType) and not object_kinds.wraps_users(value):
            return
        self._visit("global %s.%s" % (module, name), space, name, ENTRY, value)


def _is_still(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return not object_kinds.is_made(value)
    return isinstance(value, _STILL)


def _is_held(holder: Any, name: str, value: Any) -> bool:
    """Return whether a library's object got this object of the script; Keras also replaces methods by its own."""
    return not hasattr(type(holder), name) and object_kinds.is_of_script(value)


def _leaves(structure: Any) -> list[Any]:
    if isinstance(structure, dict):
        structure = list(structure.values())
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in _leaves(part)]
    return [structure]


def _is_librarys_function(function: Any) -> bool:
    """Return whether a loss or a metric is a library's function: neither it nor its decorators have state."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return isinstance(function, types.FunctionType) and not object_kinds.is_users(function.__code__.co_filename)
