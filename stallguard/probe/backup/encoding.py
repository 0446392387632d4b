"""Plain values to JSON and back: numbers, strings, containers, numpy arrays, functions by their name; no pickle.

Arrays go into a list of tensors beside the JSON, which holds their places.  A value that holds anything else
(a model, a file, a lambda) is not plain and raises `NotPlain`.
"""

from __future__ import annotations

import sys
from typing import Any

ENTRIES = 200_000  # of one container; more is data, not state
_SCALARS = (bool, int, float, str, type(None))


class NotPlain(Exception):
    """A value that cannot be stored."""


def encode(value: Any, tensors: list[Any]) -> Any:
    """Return JSON for `value`, adding its arrays to `tensors`; raises NotPlain."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        return _container(value, tensors)
    name = _name(value)
    if name:
        return {"#": "name", "at": name}
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)) or value.dtype.hasobject:
        raise NotPlain(type(value).__name__)
    tensors.append(numpy.asarray(value))
    return {"#": "scalar" if isinstance(value, numpy.generic) else "array", "at": len(tensors) - 1}


def decode(code: Any, tensors: list[Any]) -> Any:
    """Return the value that `encode` made `code` of."""
    if isinstance(code, list):
        return [decode(item, tensors) for item in code]
    if not isinstance(code, dict):
        return code
    kind, content = code["#"], code["at"]
    if kind == "array":
        return tensors[content].copy()
    if kind == "scalar":
        return tensors[content][()]
    if kind == "name":
        return _named(content)
    if kind == "dict":
        return {decode(key, tensors): decode(item, tensors) for key, item in content}
    return {"tuple": tuple, "set": set, "frozenset": frozenset}[kind](decode(content, tensors))


def _name(value: Any) -> str:
    """Return "module:name" of a function that a module has under that name, "" of anything else.

    Keras' ReduceLROnPlateau and EarlyStopping keep their comparison (`ops.less`, `numpy.less`) as state.
    """
    if not callable(value):
        return ""
    name = getattr(value, "__name__", "")
    for module in (getattr(value, "__module__", None) or "numpy", "numpy"):
        if getattr(sys.modules.get(module), name, None) is value:
            return "%s:%s" % (module, name)
    return ""


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(sys.modules.get(module), attribute, None)


def _container(value: Any, tensors: list[Any]) -> Any:
    if len(value) > ENTRIES:
        raise NotPlain("too many entries")
    kind = type(value)
    if kind is list:
        return [encode(item, tensors) for item in value]
    if kind is dict:
        pairs = [[encode(key, tensors), encode(item, tensors)] for key, item in value.items()]
        return {"#": "dict", "at": pairs}
    if kind not in (tuple, set, frozenset):
        raise NotPlain(kind.__name__)
    return {"#": kind.__name__, "at": [encode(item, tensors) for item in value]}
