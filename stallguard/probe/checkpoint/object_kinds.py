"""Classifies values: defined by the script or by a library, of which family of Keras, with or without state.

Results for classes and functions are cached.
"""

from __future__ import annotations

import contextvars
import fcntl
import functools
import io
import logging
import operator
import os
import stat
import sys
import threading
import types
import weakref
import zlib
from collections import deque
from collections.abc import Collection
from typing import Any

from .. import libraries
from ..frameworks import keras

_PROBE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
NAMES = 256  # entries at most of a dictionary whose keys are names
# Set by Keras on every callback; the last two by Keras 2.
_OF_CALLBACKS = frozenset(("model", "_model", "params", "validation_data", "progbar", "_supports_tf_logs"))
# Keras replaces containers in attributes of a model by classes of its own.
TRACKED = {
    "TrackedList": list, "ListWrapper": list, "TrackedSet": set, "TrackedDict": dict, "_DictWrapper": dict,
}  # fmt: skip
# Scripts keep values in objects of these modules.
_OPEN = ("types", "argparse", "queue", "collections", "logging", "logging.handlers")
# Classes of Python that have no pickle, or only their name as one, and no state of a training.  Those of libraries are
# in their records.
_PROVEN = {
    "typing": frozenset(("TypeVar", "ParamSpec")),
    "builtins": frozenset(("object", "ellipsis", "NotImplementedType")),
    "_struct": frozenset(("Struct",)), "re": frozenset(("Match",)),
}  # fmt: skip
# Their pickles only say where the values are; the last is of h5py.
_REFERENCES = ("BaseProxy", "SharedMemory", "ShareableList", "ObjectID")
_EVENTS = ("Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier")  # a lock and numbers
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_WALKED = (list, tuple, dict, deque, type(None))  # object_walk.py visits what is in them
_SHOWN_KEYS = (str, bytes, int, float, complex, bool, tuple, type(None))
_HANDLED = (
    type, types.ModuleType, types.FunctionType, types.MethodType, types.GeneratorType, types.CoroutineType,
    functools.partial, staticmethod, classmethod, io.IOBase, weakref.ref, contextvars.ContextVar, logging.Logger,
    threading.local,
)  # fmt: skip
# Py_TPFLAGS_MANAGED_DICT: the object's size does not include the reference to its dictionary
_MANAGED_DICT = 1 << 4


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable of TensorFlow or Keras."""
    kind = type(value)
    has_value = hasattr(kind, "numpy") or hasattr(kind, "value")
    return has_value and hasattr(kind, "assign") and hasattr(kind, "shape")


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor with a value, not a symbolic one, of TensorFlow, torch or JAX."""
    library = libraries.of_class(type(value))
    return library is not None and library.is_tensor is not None and library.is_tensor(value)


def is_constant(value: Any) -> bool:
    """Return whether a value is a tensor that cannot be changed: one of TensorFlow or JAX."""
    library = libraries.of_class(type(value))
    return library is not None and library.is_fixed and is_tensor(value)


def _cached(function: Any) -> Any:
    """Return `function` with a cache; its type is Any, because mypy accepts no class as an argument of a cached one."""
    return functools.cache(function)


def is_users(file: str) -> bool:
    """Return whether a file of code belongs to the script, not to a library, Python itself or the probe."""
    # "<string>" is also what dataclasses and named tuples generate.
    return not file.startswith("<string") and not libraries.is_librarys(file)


@_cached
def is_librarys(kind: Any) -> bool:
    """Return whether a class belongs to a library, Python itself or the probe, not to the script."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if kind.__module__ == "__main__":
        return False
    return file is None or not is_users(file)


def is_of_script(value: Any) -> bool:
    """Return whether a value is an object of a class of the script, or a function, or a method, that it defines."""
    if isinstance(value, types.MethodType):
        return is_of_script(value.__self__) or is_of_script(value.__func__)
    if isinstance(value, functools.partial):
        return is_of_script(value.func)
    if isinstance(value, types.FunctionType):
        return wraps_users(value)
    return not is_librarys(type(value))


@_cached
def names_of_library(kind: Any) -> frozenset[str]:
    """Return the attributes of an object that its library manages: those that the library's code names."""
    family = _family_of(kind)
    if family == "Callback":
        return _OF_CALLBACKS
    return named_by_library(kind) if family or kind.__name__ in TRACKED else frozenset()


def has_attributes(container: Any) -> bool:
    """Return whether a container that Keras made of the script's has attributes that the script set."""
    kind, names = type(container), getattr(container, "__dict__", ())
    return kind.__name__ in TRACKED and not names_of_library(kind).issuperset(names)


def wraps_users(function: types.FunctionType) -> bool:
    """Return whether a function of a library was made around one of the script's, as functools.singledispatch's is."""
    inner: Any = function
    while inner is not None:
        if isinstance(inner, types.FunctionType) and is_users(inner.__code__.co_filename):
            return True
        inner = getattr(inner, "__wrapped__", None)
    return False


def is_pipe(value: Any) -> bool:
    """Return whether a value is what os.pipe() returns: the two ends of a pipe that is open."""
    if type(value) is not tuple or len(value) != 2 or {*map(type, value)} != {int}:  # noqa: PLR2004  a pair
        return False
    try:
        ends = [(os.fstat(one), fcntl.fcntl(one, fcntl.F_GETFL) & os.O_ACCMODE) for one in value]
    except (OSError, OverflowError):
        return False  # numbers of something else
    # On macOS each end has a number of its own (pipe_stat of bsd/kern/sys_pipe.c), on Linux both have the same.
    is_one = sys.platform == "darwin" or ends[0][0].st_ino == ends[1][0].st_ino
    modes = [mode for _, mode in ends] == [os.O_RDONLY, os.O_WRONLY]
    return is_one and modes and all(stat.S_ISFIFO(one.st_mode) for one, _ in ends)


@_cached
def named_by_library(kind: Any) -> frozenset[str]:
    """Return the names that the code of a class's library bases uses."""
    found: set[str] = set()
    for one in kind.__mro__:
        if is_librarys(one) and one is not object:
            for item in vars(one).values():
                function = getattr(item, "fget", None) or getattr(item, "__func__", item)
                while hasattr(function, "__wrapped__"):
                    function = function.__wrapped__
                if isinstance(function, types.FunctionType):
                    found |= names_in(function.__code__)
    return frozenset(found)


def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names that code uses: globals, attributes, and strings, which it can pass to getattr."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_in(constant)
        elif isinstance(constant, str):
            found.add(constant)  # for getattr(self, "name") and setattr
    return frozenset(found)


def family(value: Any) -> str:
    """Return the family of Keras to which a value belongs, "" if to none."""
    return str(_family_of(type(value)))


@_cached
def _family_of(kind: Any) -> str:
    """Return the family of Keras to which a class belongs, "" if to none."""
    for one in kind.__mro__:
        if one.__name__ in keras.FAMILIES and keras.is_keras(one.__module__.partition(".")[0]):
            return keras.FAMILIES[one.__name__]
    return ""


@_cached
def is_proven(kind: Any) -> bool:
    """Return whether objects of a library's class have no state, except the script's objects in them."""
    bases = kind.__mro__ if kind is object else kind.__mro__[:-1]
    return any(one.__name__ in _stateless(one.__module__.partition(".")[0]) for one in bases)


def _stateless(package: str) -> Collection[str]:
    library = libraries.of(package)
    return _PROVEN.get(package, ()) if library is None else library.stateless


@_cached
def hides_state(kind: Any) -> bool:
    """Return whether objects of a class have memory that no attribute shows, as those of compiled classes have.

    By the size of an object: the test by which Python refuses to copy one (object_getstate_default in typeobject.c).
    """
    size, pointer = object.__basicsize__, tuple.__itemsize__
    if kind.__dictoffset__ and not kind.__flags__ & _MANAGED_DICT:
        size += pointer
    if kind.__weakrefoffset__ > 0:
        size += pointer
    size += pointer * sum(len(slots_of(one)) for one in kind.__mro__)
    return bool(kind.__basicsize__ > size or kind.__itemsize__)


def is_scripts_module(module: types.ModuleType) -> bool:
    """Return whether a module is a file of the script, or was made by it without a file."""
    file = getattr(module, "__file__", None)
    return is_users(file) if isinstance(file, str) else is_made(module)


def is_made(module: types.ModuleType) -> bool:
    """Return whether the script has made a module itself, as an object that holds names."""
    is_imported = getattr(module, "__spec__", None) is not None or hasattr(module, "__file__")
    return not is_imported and module.__name__ not in ("__main__", *sys.builtin_module_names)


def is_interpreters(value: Any) -> bool:
    """Return whether a dictionary is Python's own: the modules, or a module's names."""
    return isinstance(value, dict) and (value is sys.modules or "__spec__" in value)


@_cached
def is_handle(kind: Any) -> bool:
    """Return whether objects of a library's class stand for something else, which a copy would share or end."""
    return hasattr(kind, "__del__") or any(one.__name__ in _REFERENCES for one in kind.__mro__)


@_cached
def can_be_whole(kind: Any) -> bool:
    """Return whether objects of a class are kept as a pickle if they have one: the library says what their state is."""
    if kind in _WALKED or kind.__name__ in TRACKED or is_open(kind) or _family_of(kind):
        return False
    if issubclass(kind, _HANDLED) or hasattr(kind, "__next__") or hasattr(kind, "hexdigest"):
        return False
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and issubclass(kind, numpy.ndarray):
        return False  # one that encoding.py refuses is a file
    says = ("__getstate__", "__reduce__", "__reduce_ex__")
    bases = [one for one in kind.__mro__ if one is not object and is_librarys(one)]
    return is_librarys(kind) or hides_state(kind) or any(name in vars(one) for one in bases for name in says)


def is_open(kind: type) -> bool:
    """Return whether a class is one of the standard library in which scripts keep values."""
    is_event = kind.__module__ == "threading" and kind.__name__ in _EVENTS
    return is_event or (kind.__module__ in _OPEN and kind.__name__ != "LogRecord")


def is_probes(value: Any) -> bool:
    """Return whether a value is an object of the probe, or the loop that `stallguard.track` returned."""
    if isinstance(value, types.GeneratorType):
        return value.gi_code.co_filename.startswith(_PROBE)
    return type(value).__module__.startswith(__name__.rpartition(".checkpoint.")[0] + ".")


def is_lock(value: Any) -> bool:
    """Return whether a value is a lock: `shape_of` shows whether it is held."""
    return isinstance(value, _LOCKS)


def is_record(value: Any) -> bool:
    """Return whether the keys of a dictionary are names, like the attributes of an object."""
    return type(value) is dict and 0 < len(value) <= NAMES and all(type(key) is str for key in value)


def is_hash(value: Any) -> bool:
    """Return whether a value computes a checksum of what it gets, as hashlib's objects: its state cannot be read."""
    kind = type(value)
    return hasattr(kind, "hexdigest") and hasattr(kind, "update") and not hasattr(value, "__dict__")


def is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_changing_array(value: Any) -> bool:
    """Return whether a value is an array of numpy that the script can change; asked of what encoding.py cannot keep."""
    return is_array(value) and bool(value.flags.writeable)


def is_bare_iterator(value: Any) -> bool:
    """Return whether a value is a built-in iterator, whose position cannot be read."""
    return hasattr(type(value), "__next__") and not hasattr(value, "__dict__")


def is_drawn(value: Any) -> bool:
    """Return whether drawing the batches again brings an object back: an iterator, or a training library's loader."""
    package = type(value).__module__.partition(".")[0]
    is_loader = libraries.knows(package) or package == __name__.partition(".")[0]
    return isinstance(value, types.GeneratorType) or is_bare_iterator(value) or is_loader


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the attributes in the slots of a class."""
    if "__slots__" not in vars(kind):
        return ()
    # Not its text: the name of a private one has the class's before it.
    return tuple(name for name, one in vars(kind).items() if isinstance(one, types.MemberDescriptorType))


def shape_of(value: Any) -> Any:
    """Return what distinguishes a structure from another one in the same place: its class and its entries."""
    kind = "%s.%s" % (type(value).__module__, type(value).__qualname__)
    if isinstance(value, dict):
        return [kind, texts_of_keys(value)]
    if isinstance(value, types.FunctionType):
        return [kind, value.__qualname__]
    if isinstance(value, types.GeneratorType):
        return [kind, "begun" if _has_begun(value) else "new", object() if _has_begun(value) else None]
    if is_lock(value):
        return [kind, value.locked() if hasattr(value, "locked") else value._is_owned()]
    if is_hash(value):
        try:
            return [kind, value.hexdigest()]
        except TypeError:  # of a hash of any length
            return [kind, value.hexdigest(16)]
    if is_changing_array(value):
        # Of an array that is a file, or has many objects, nothing is read.
        few = value.dtype.hasobject and value.size <= NAMES
        return [kind, zlib.crc32(repr(value.tolist()).encode("utf-8", "replace")) if few else None]
    if is_bare_iterator(value):
        left = operator.length_hint(value, -1)
        # Without a length it counts as changed.
        return [kind, left, object() if left < 0 else None]
    return [kind, len(value)] if isinstance(value, (list, tuple, deque)) else [kind]


def _has_begun(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    suspended = getattr(generator, "gi_suspended", None)  # Python 3.11 and later
    frame = generator.gi_frame
    return frame is None or (frame.f_lasti >= 0 if suspended is None else bool(suspended))


def texts_of_keys(keys: Any) -> list[str]:
    """Return the text for each key of a dictionary in a path: another one for each, the same in another process."""
    found: list[str] = []
    counts: dict[str, int] = {}
    for key in keys:
        text = _text_of_key(key)
        counts[text] = counts.get(text, 0) + 1
        found.append(text if counts[text] == 1 else "%s#%d" % (text, counts[text]))
    return found


def _text_of_key(key: Any) -> str:
    if type(key) in _SHOWN_KEYS:
        return repr(key)
    if isinstance(key, (type, types.FunctionType, types.BuiltinFunctionType)):
        return "%s:%s" % (key.__module__, key.__qualname__)
    return str(type(key))  # its own text can be code of the script, or have its address
