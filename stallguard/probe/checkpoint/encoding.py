"""Converts plain values to JSON and back: numbers, texts, containers, arrays, random generators.  No code is run.

Functions and classes are kept by their names; names.py says which of them can come back.

Arrays go into a separate list of tensors; the JSON holds their indices.  They are not copied, and the script can change
them at any time: the caller copies what it keeps.  Long lists of numbers of one type become arrays too: a callback that
keeps the loss of every batch has a million of them.  A value that contains anything else (a model, a file, a lambda) is
not plain and raises `NotPlain`.

When decoded, a container or a generator that exists already is changed in place, because others refer to the same
object.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Callable

from . import names, python_generators

ENTRIES = 200_000  # of one container whose entries differ in type; a larger one is data, not state
LONG = 64  # entries from which a list of numbers of one type is kept as an array
_SCALARS = (bool, int, float, str, type(None))
_NUMBERS = {float: "d", int: "q"}
TRACKED = {
    "TrackedList": list,
    "ListWrapper": list,
    "TrackedSet": set,
    "TrackedDict": dict,
    "_DictWrapper": dict,
}
_LISTS = (list, tuple, set, frozenset, deque)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
# Classes of the standard library, with the method that returns the text from which they are made again.
_VALUES = {
    ("datetime", "datetime"): "isoformat", ("datetime", "date"): "isoformat", ("datetime", "time"): "isoformat",
    ("decimal", "Decimal"): "__str__", ("fractions", "Fraction"): "__str__", ("uuid", "UUID"): "__str__",
    ("pathlib", "PosixPath"): "__str__", ("pathlib._local", "PosixPath"): "__str__",
}  # fmt: skip
_FROM_ISO = ("datetime", "date", "time")


class NotPlain(Exception):
    """A value that cannot be stored, or that a checkpoint must not bring."""


def encode(value: Any, tensors: list[Any]) -> Any:
    """Return JSON for `value`, adding its arrays to `tensors`; raises NotPlain."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    # Keras replaces containers in attributes of a model by classes of its own.
    kind = TRACKED.get(kind.__name__, kind)
    if isinstance(value, _LISTS):
        return _list(value, kind, tensors)
    if isinstance(value, dict):
        return _dict(value, kind, tensors)
    if kind in (bytes, bytearray, complex):
        return {"#": kind.__name__, "at": [value.real, value.imag] if kind is complex else value.hex()}
    if (kind.__module__, kind.__name__) in _VALUES:
        text = getattr(value, _VALUES[kind.__module__, kind.__name__])()
        return {"#": "value", "of": "%s:%s" % (kind.__module__, kind.__name__), "at": text}
    name = name_of(value)
    if name:
        return {"#": "name", "at": name}
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum) and isinstance(value.name, str):
        return {"#": "member", "of": "%s:%s" % (kind.__module__, kind.__qualname__), "at": value.name}
    state = python_generators.read(value)
    if state is not None:
        return {"#": "generator", "of": kind.__name__, "at": encode(state, tensors)}
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)) or value.dtype.hasobject:
        raise NotPlain(kind.__name__)
    if kind is not numpy.ndarray and isinstance(value, numpy.ndarray):
        raise NotPlain(kind.__name__)  # a masked array is more than its values
    tensors.append(numpy.asarray(value))
    return {"#": "scalar" if isinstance(value, numpy.generic) else "array", "at": len(tensors) - 1}


def decode(
    code: Any, tensors: list[Any], existing: Any = None, allowed: Callable[[Any], bool] = names.can_be_kept
) -> Any:
    """Return the value that `encode` converted to `code`: `existing`, changed, if it has the right type.

    `allowed`: whether a named function or class can be in it.  Raises NotPlain if one cannot, or for a kind of value
    that `encode` does not know; and what a type raises for an unfit text.
    """
    if isinstance(code, list):
        return _filled(existing, [decode(item, tensors, None, allowed) for item in code])
    if not isinstance(code, dict):
        return code
    kind, content = code["#"], code["at"]
    if kind == "scalar":
        return tensors[content][()]
    if kind == "array":
        array = tensors[content]
        fits = type(existing) is type(array) and existing.shape == array.shape
        if fits and existing.dtype == array.dtype and existing.flags.writeable:
            existing[...] = array
            return existing
        return array.copy()
    if kind == "numbers":
        found = tensors[content]
        items = list(found) if code["own"] else found.tolist()  # numbers of numpy's, or Python's
        return _filled(existing, _built(code["of"], items, code))
    if kind in _BY_NAME:
        return _filled(
            existing, _built(kind, [decode(item, tensors, None, allowed) for item in content], code)
        )
    if kind in _DICT_BY_NAME:
        pairs = [[decode(part, tensors, None, allowed) for part in pair] for pair in content]
        return _mapping(existing, kind, pairs, code, allowed)
    if kind == "generator":
        return python_generators.write(code["of"], decode(content, tensors, None, allowed), existing)
    if kind == "name":
        return _named(content, allowed)
    if kind == "complex":
        return complex(*content)
    if kind in ("bytes", "bytearray"):
        return bytes.fromhex(content) if kind == "bytes" else bytearray.fromhex(content)
    if kind == "member":
        members = getattr(_named(code["of"], _is_enum), "__members__", {})
        return members[content]
    module, _, name = str(code.get("of")).partition(":")
    if kind != "value" or (module, name) not in _VALUES or not isinstance(content, str):
        raise NotPlain(str(kind))
    made = names.resolved("%s:%s" % (module, name))
    return made.fromisoformat(content) if name in _FROM_ISO else made(content)


def refused(code: Any) -> str:
    """Return the first name in the JSON of a value that `decode` refuses, "" if there is none."""
    if isinstance(code, list):
        return next(filter(None, map(refused, code)), "")
    if not isinstance(code, dict):
        return ""
    name = code.get("factory") if code.get("#") == "defaultdict" else code.get("at")
    is_name = code.get("#") in ("name", "defaultdict") and isinstance(name, str) and name not in ("", "?")
    if is_name and not names.can_be_kept(names.resolved(str(name))):
        return str(name)
    return next(filter(None, map(refused, code.values())), "")


def _named(name: str, allowed: Callable[[Any], bool]) -> Any:
    found = names.resolved(name)
    if not allowed(found):
        raise NotPlain(name)
    return found


def _is_enum(value: Any) -> bool:
    enum = sys.modules.get("enum")
    return enum is not None and isinstance(value, enum.EnumMeta)


def name_of(value: Any) -> str:
    """Return "module:name" of a function or class that a module has under that name, "" for any other value.

    Keras' ReduceLROnPlateau and EarlyStopping keep their comparison (`ops.less`, `numpy.less`) as state.
    """
    if not callable(value):
        return ""
    name = getattr(value, "__name__", "")
    for module in (getattr(value, "__module__", None) or "numpy", "numpy"):
        if isinstance(name, str) and getattr(sys.modules.get(module), name, None) is value:
            return "%s:%s" % (module, name)
    return ""


def _list(value: Any, kind: type, tensors: list[Any]) -> Any:
    numbers = _numbers(value)
    if numbers is not None:
        own = not isinstance(next(iter(value)), tuple(_NUMBERS))
        code = {"#": "numbers", "of": kind.__name__, "own": own, "at": len(tensors)}
        tensors.append(numbers)
    else:
        if len(value) > ENTRIES:
            raise NotPlain("too many entries")
        items = [encode(item, tensors) for item in value]
        if kind is list:
            return items
        code = {"#": kind.__name__, "at": items}
    if kind not in _LISTS:
        raise NotPlain(kind.__name__)
    if kind is deque:
        code["most"] = value.maxlen
    return code


def _numbers(value: Any) -> Any:
    """Return a long list of floats, of small ints, or of numpy's numbers, as an array; None for any other list."""
    numpy = sys.modules.get("numpy")
    if len(value) < LONG or numpy is None:
        return None
    first = type(next(iter(value)))
    known = first in _NUMBERS or issubclass(first, numpy.number)
    if not known or any(type(item) is not first for item in value):
        return None
    if first not in _NUMBERS:
        return numpy.array(list(value))
    try:
        return numpy.frombuffer(array(_NUMBERS[first], value), dtype=_NUMBERS[first])
    except OverflowError:
        return None


def _dict(value: Any, kind: type, tensors: list[Any]) -> Any:
    if len(value) > ENTRIES:
        raise NotPlain("too many entries")
    if kind not in _DICTS:
        raise NotPlain(kind.__name__)
    pairs = [[encode(key, tensors), encode(item, tensors)] for key, item in value.items()]
    code = {"#": kind.__name__, "at": pairs}
    if kind is defaultdict:
        factory = name_of(value.default_factory) if value.default_factory is not None else ""
        if value.default_factory is not None and not factory:
            factory = "?"  # a lambda: only an existing defaultdict can be filled
        code["factory"] = factory
    return code


_BY_NAME = {kind.__name__: kind for kind in _LISTS}
_DICT_BY_NAME: dict[str, Any] = {kind.__name__: kind for kind in _DICTS}


def _built(kind: str, items: list[Any], code: dict[str, Any]) -> Any:
    return deque(items, code.get("most")) if kind == "deque" else _BY_NAME[kind](items)


def _filled(existing: Any, value: Any) -> Any:
    """Return `existing` with the entries of `value` if both have the same mutable type, otherwise `value`."""
    if existing is value or not isinstance(existing, type(value)):
        return value
    if isinstance(value, list):
        existing[:] = value
    elif isinstance(value, deque) and existing.maxlen == value.maxlen:
        existing.clear()
        existing.extend(value)
    elif isinstance(value, set):
        existing.clear()
        existing.update(value)
    else:
        return value
    return existing


def _mapping(
    existing: Any, kind: str, pairs: list[Any], code: dict[str, Any], allowed: Callable[[Any], bool]
) -> Any:
    if isinstance(existing, _DICT_BY_NAME[kind]):
        existing.clear()
        existing.update(dict(pairs))
        return existing
    if kind == "defaultdict":
        if code["factory"] == "?":
            raise NotPlain("a defaultdict whose factory has no name")
        factory = _named(code["factory"], allowed) if code["factory"] else None
        return _DICT_BY_NAME[kind](factory, dict(pairs))
    return _DICT_BY_NAME[kind](dict(pairs))
