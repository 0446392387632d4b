"""Names of functions and classes in a checkpoint, and which of them a checkpoint can bring into a training.

A checkpoint is data, and another user can have written it: a directory of runs is shared or copied.  Keras' callbacks
keep functions as state (`ops.less`), so a checkpoint contains names.  A name that leads to any function would be code:
`os:system` is a name.  So a name leads to

- a function or a class that the script's own files define: a choice among them is what the script made;
- a function of numbers in a library, which only computes: `less`, `sqrt`, losses, activations;
- a type of plain values: `list`, `float`, numpy's number types, `collections.deque`.

Anything else is refused, however it is written.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import libraries
from ..frameworks import keras
from . import object_kinds

_PYTHONS = ("builtins", "operator", "_operator")  # modules with functions of numbers
_NUMBERS = frozenset(
    "abs absolute add all amax amin any argmax argmin ceil clip cos cosh divide equal exp expm1 float_power floor "
    "floor_divide fmax fmin ge greater greater_equal gt isclose isfinite isinf isnan le len less less_equal log log10 "
    "log1p log2 logical_and logical_not logical_or lt matmul max maximum mean median min minimum mod mul multiply "
    "nanmax nanmean nanmin ne negative not_equal power prod reciprocal relu round rsqrt sigmoid sign sin sinh softmax "
    "softplus sqrt square std sub subtract sum tan tanh true_divide truediv var".split()
)
_TYPES = frozenset((
    "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple",
    "Counter", "OrderedDict", "defaultdict", "deque",
))  # fmt: skip
_DEFINES_TYPES = ("builtins", "collections")


def resolved(name: str) -> Any:
    """Return the object of a name "module:path" that is loaded, None if it does not exist."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def can_be_kept(value: Any) -> bool:
    """Return whether a checkpoint can bring this function or class into a training."""
    # Of the object itself: a script that has `from os import system` does not define it.
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", "")
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ufunc):
        return True
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    if isinstance(value, type):
        if numpy is not None and issubclass(value, numpy.generic):
            return True
        if module in _DEFINES_TYPES and name in _TYPES:
            return True
    elif module == "math":
        return True
    elif _is_of_numbers(module.partition(".")[0]):
        in_folder = any(part in keras.NUMBER_MODULES for part in module.split("."))
        is_public = not name.startswith("_") and name not in keras.MAKERS
        return name in _NUMBERS or (in_folder and is_public)
    return _is_of_the_script(module)


def _is_of_numbers(package: str) -> bool:
    library = libraries.of(package)
    return package in _PYTHONS or (library is not None and library.computes and library.name == package)


def _is_of_the_script(module: str) -> bool:
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return isinstance(file, str) and object_kinds.is_users(file)
