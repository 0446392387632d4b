"""Classifies values: defined by the script or by a library, of which family of Keras, with or without state.

Results for classes and functions are cached.
"""

from __future__ import annotations

import functools
import operator
import os
import sys
import sysconfig
import types
import zlib
from typing import Any

from .. import libraries

NAMES = 256  # entries at most of a dictionary whose keys are names
# Set by Keras on every callback; the last two by Keras 2.
_OF_CALLBACKS = frozenset(("model", "_model", "params", "validation_data", "progbar", "_supports_tf_logs"))
_FAMILIES = ("Layer", "Model", "Optimizer", "BaseOptimizer", "OptimizerV2", "Metric", "Loss", "Callback")
_OPEN = ("types", "argparse", "queue", "collections")  # scripts keep values in objects of these modules
_WITHOUT_STATE = frozenset((
    "_thread", "threading", "logging", "weakref", "_weakref", "asyncio", "concurrent", "multiprocessing", "typing",
    "tensorflow", "google", "h5py", "abc", "_abc", "jax", "jaxlib", "matplotlib", "wandb", "mlflow", "tensorboard",
    "keras", "tf_keras", "torch", "importlib", "_frozen_importlib", "_frozen_importlib_external", "rich", "tqdm",
    "_stallguard_probe", "stallguard", "ctypes", "_ctypes", "numpy", "pandas",
))  # fmt: skip


def is_variable(value: Any) -> bool:
    """Return whether a value is a variable of TensorFlow or Keras."""
    kind = type(value)
    return (
        hasattr(kind, "assign")
        and hasattr(kind, "shape")
        and (hasattr(kind, "numpy") or hasattr(kind, "value"))
    )


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor with a value, not a symbolic one, of TensorFlow, torch or JAX."""
    kind = type(value)
    root = kind.__module__.partition(".")[0]
    if root == "tensorflow":
        return kind.__name__ == "EagerTensor"
    return root in ("torch", "jax", "jaxlib") and hasattr(value, "shape") and hasattr(value, "__array__")


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


@_cached
def names_of_library(kind: Any) -> frozenset[str]:
    """Return the attributes of an object that its library manages: those that the library's code names."""
    family = _family_of(kind)
    if family == "Callback":
        return _OF_CALLBACKS
    return named_by_library(kind) if family else frozenset()


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
        if one.__name__ in _FAMILIES and one.__module__.partition(".")[0] in ("keras", "tf_keras"):
            if "Optimizer" in one.__name__:
                return "Optimizer"
            return "Layer" if one.__name__ == "Model" else one.__name__
    return ""


def is_without_state(kind: type) -> bool:
    """Return whether objects of a framework's class have no state except variables and generators."""
    return kind.__module__.partition(".")[0] in _WITHOUT_STATE


def is_interpreters(value: Any) -> bool:
    """Return whether a dictionary is Python's own: the modules, or a module's names."""
    return isinstance(value, dict) and (value is sys.modules or "__spec__" in value)


@_cached
def is_pythons(kind: Any) -> bool:
    """Return whether a class is of the standard library, and not one in which scripts keep values."""
    if kind.__module__ in _OPEN:
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    folder = os.path.join(sysconfig.get_paths()["stdlib"], "")
    return file is None or (file.startswith(folder) and "-packages" not in file)


def is_record(value: Any) -> bool:
    """Return whether the keys of a dictionary are names, like the attributes of an object."""
    return type(value) is dict and 0 < len(value) <= NAMES and all(type(key) is str for key in value)


def is_hash(value: Any) -> bool:
    """Return whether a value computes a checksum of what it gets, as hashlib's objects: its state cannot be read."""
    kind = type(value)
    return hasattr(kind, "hexdigest") and hasattr(kind, "update") and not hasattr(value, "__dict__")


def is_changing_array(value: Any) -> bool:
    """Return whether a value is an array of numpy that the script can change, and that encoding.py cannot keep."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and bool(value.flags.writeable)


def is_bare_iterator(value: Any) -> bool:
    """Return whether a value is a built-in iterator, whose position cannot be read."""
    return hasattr(type(value), "__next__") and not hasattr(value, "__dict__")


def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the attributes in the slots of a class."""
    found = vars(kind).get("__slots__", ())
    names = (found,) if isinstance(found, str) else tuple(found)
    return tuple(name for name in names if not name.startswith("__"))


def shape_of(value: Any) -> Any:
    """Return what distinguishes a structure from another one in the same place: its class and its entries."""
    kind = "%s.%s" % (type(value).__module__, type(value).__qualname__)
    if isinstance(value, dict):
        return [kind, [text_of_key(key) for key in value]]
    if isinstance(value, types.FunctionType):
        return [kind, value.__qualname__]
    if isinstance(value, types.GeneratorType):
        return [kind, "begun" if _has_begun(value) else "new", object() if _has_begun(value) else None]
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
    return [kind, len(value)] if isinstance(value, (list, tuple)) else [kind]


def _has_begun(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    suspended = getattr(generator, "gi_suspended", None)  # Python 3.11 and later
    frame = generator.gi_frame
    return frame is None or (frame.f_lasti >= 0 if suspended is None else bool(suspended))


def text_of_key(key: Any) -> str:
    """Return the text for a key of a dictionary in a path."""
    return repr(key) if isinstance(key, (str, int, float, bool, tuple, type(None))) else str(type(key))
