"""Converts plain values to JSON and back: numbers, texts, containers, arrays, random generators.  No code is run.

Functions and classes are kept by their names; names.py says which of them can come back.

Arrays go into a separate list of tensors; the JSON holds their indices.  They are not copied: the caller copies what it
keeps.  Long lists of numbers of one type become arrays too: a callback that keeps the loss of every batch has a million
of them.  Of an array whose type is more than a number of this machine (texts, records, another order of bytes) its
bytes and its type are kept.  Anything else (a model, a file, a lambda) is not plain and raises `NotPlain`.

When decoded, a container or a generator that exists is changed in place, because others refer to the same object.  One
that is in several places of a value is one object in all of them again, and two are never changed into one.
"""

from __future__ import annotations

import io
import re
import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Callable

from .. import libraries
from ..frameworks import jax
from . import names, object_kinds, random_state
from . import tensors as tensors_of

ENTRIES = 200_000  # of one container whose entries differ in type; a larger one is data, not state
LONG = 64  # entries from which a list of numbers of one type is kept as an array
_SCALARS = (bool, int, float, str, type(None))
_KINDS_OF_SCALARS = frozenset(_SCALARS)
_MUTABLE = (list, dict, set, deque, bytearray, array, io.StringIO, io.BytesIO)
_NUMBERS = {float: "d", int: "q"}
_LISTS = (list, tuple, set, frozenset, deque)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
# Classes of the standard library, with the method that returns the text from which they are made again.
_VALUES = {
    ("datetime", "datetime"): "isoformat", ("datetime", "date"): "isoformat", ("datetime", "time"): "isoformat",
    ("decimal", "Decimal"): "__str__", ("fractions", "Fraction"): "__str__", ("uuid", "UUID"): "__str__",
    ("pathlib", "PosixPath"): "__str__", ("pathlib._local", "PosixPath"): "__str__",
}  # fmt: skip
_FROM_ISO = ("datetime", "date", "time")
_NUMBER_KINDS = "biufcmM"  # numpy.dtype.kind
# The type of an array's values; numpy parses more than types.
_TYPE = re.compile(r"[<>|=][biufcmMSUV]\d+(?:\[\w+\])?\Z", re.ASCII)
_POINTERS = "PzZO"  # ctypes: kinds of values that are addresses


class NotPlain(Exception):
    """A value that cannot be stored, or that a checkpoint must not bring."""


class Arrays:
    """The arrays of one call of `encode`, and the objects that are in several places of its value."""

    def __init__(self, arrays: list[Any], value: Any) -> None:
        self._arrays = arrays
        self._seen: set[int] = set()
        self.numbers: dict[int, int] = {}  # by id, of the objects that are in several places
        self.is_over: dict[int, bool] = {}  # by number, of those that were come upon: whether all that is in it was
        self._look(value)

    def __len__(self) -> int:
        return len(self._arrays)

    def append(self, one: Any) -> None:
        """Add an array."""
        self._arrays.append(one)

    def _look(self, value: Any) -> None:
        if type(value) in _SCALARS:
            return
        if _is_mutable(value):
            if id(value) in self._seen:
                self.numbers.setdefault(id(value), len(self.numbers))
                return
            self._seen.add(id(value))
        parts = _parts(value)
        if parts and not _KINDS_OF_SCALARS.issuperset(map(type, parts)):
            for one in parts:
                self._look(one)


def _is_mutable(value: Any) -> bool:
    return isinstance(value, _MUTABLE) or object_kinds.is_array(value)


def _parts(value: Any) -> Any:
    """Return what a container has, each of which can be in another place too."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (list, tuple, deque)):
        return value
    has_objects = object_kinds.is_array(value) and value.dtype == object and value.size <= ENTRIES
    return value.reshape(-1).tolist() if has_objects else ()


def encode(value: Any, tensors: list[Any]) -> Any:
    """Return JSON for `value`, adding its arrays to `tensors`; raises NotPlain."""
    memory = _memory(value)
    if memory is None:
        return _encoded(value, Arrays(tensors, value))
    # Not of an entry of a container: `decode` needs the object that exists.
    return {"#": "memory", "at": _bytes(memory, tensors)}


def _encoded(value: Any, tensors: Arrays) -> Any:
    if type(value) in _SCALARS:
        return value
    number = tensors.numbers.get(id(value))
    if number is None:
        return _content(value, tensors)
    if number in tensors.is_over:
        if not tensors.is_over[number]:
            raise NotPlain("a %s that contains itself" % type(value).__name__)
        return {"#": "same", "at": number}
    tensors.is_over[number] = False
    code = _content(value, tensors)
    tensors.is_over[number] = True
    return {"#": "first", "of": number, "at": code}


def _content(value: Any, tensors: Arrays) -> Any:
    kind = type(value)
    if object_kinds.has_attributes(value) or object_kinds.is_pipe(value):
        raise NotPlain(kind.__name__)
    kind = object_kinds.TRACKED.get(kind.__name__, kind)
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
    if enum is not None and isinstance(value, enum.Enum):
        of = "%s:%s" % (kind.__module__, kind.__qualname__)
        if isinstance(value.name, str) and value.name in kind.__members__:
            return {"#": "member", "of": of, "at": value.name}
        if isinstance(value, enum.Flag) and type(value.value) is int:
            return {"#": "flags", "of": of, "at": value.value}
    state = random_state.read(value)
    if state is not None:
        return {"#": "generator", "of": state[0], "at": _encoded(state[1], tensors)}
    if kind is array:
        return {"#": "array.array", "of": value.typecode, "at": _bytes(value.tobytes(), tensors)}
    if kind in (io.StringIO, io.BytesIO) and not value.closed:
        content = value.getvalue()
        code = content if kind is io.StringIO else _bytes(content, tensors)
        return {"#": kind.__name__, "position": value.tell(), "at": code}
    if jax.is_key(value):
        of, data = jax.data_of_key(value)
        return {"#": "key", "of": of, "at": _of_numpy(data, type(data), sys.modules["numpy"], tensors)}
    if object_kinds.is_constant(value):
        content = tensors_of.value_of(value)  # to be read only, in a framework's way
        code = _of_numpy(content, type(content), sys.modules["numpy"], tensors)
        return {"#": "tensor", "of": kind.__module__.partition(".")[0], "at": code}
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise NotPlain(kind.__name__)
    code = _of_numpy(value, kind, numpy, tensors)
    is_fixed = isinstance(value, numpy.ndarray) and not value.flags.writeable
    return {**code, "fixed": True} if is_fixed else code


def _of_numpy(value: Any, kind: Any, numpy: Any, tensors: Arrays) -> Any:
    is_masked = kind.__module__.startswith("numpy.ma") and kind.__name__ == "MaskedArray"
    if is_masked:
        mask = numpy.ma.getmaskarray(value)
        parts = (numpy.ma.getdata(value), mask, value.fill_value, bool(value.hardmask))
        return {"#": "masked", "at": [_encoded(part, tensors) for part in parts]}
    is_array = isinstance(value, numpy.ndarray)
    if is_array and kind not in (numpy.ndarray, numpy.recarray):
        raise NotPlain(kind.__name__)  # as of a file that is mapped into memory
    plain = numpy.asarray(value)
    if plain.dtype == object and is_array:
        if plain.size > ENTRIES:
            raise NotPlain("too many entries")
        items = [_encoded(item, tensors) for item in plain.reshape(-1)]
        return {"#": "objects", "shape": list(plain.shape), "at": items}
    if plain.dtype.hasobject:
        raise NotPlain(kind.__name__)
    # Numbers of this machine, also bfloat16 and its like.
    is_others = plain.dtype.kind == "V" and not issubclass(plain.dtype.type, numpy.void)
    if plain.dtype.isnative and (plain.dtype.kind in _NUMBER_KINDS or is_others):
        tensors.append(plain)
        return {"#": "array" if is_array else "scalar", "at": len(tensors) - 1}
    code = _bytes(plain.tobytes(), tensors)
    return {
        "#": "typed", "of": kind.__name__ if is_array else "scalar", "type": _type_code(plain.dtype),
        "shape": list(plain.shape), "at": code,
    }  # fmt: skip


def _bytes(content: bytes, tensors: Arrays | list[Any]) -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return {"#": "bytes", "at": content.hex()}
    tensors.append(numpy.frombuffer(content, numpy.uint8))
    return {"#": "array", "at": len(tensors) - 1}


def _type_code(dtype: Any) -> Any:
    """Return the JSON of a numpy.dtype.  Raises NotPlain for one that is more than bytes."""
    if dtype.names is not None:
        fields = [[name, _type_code(dtype.fields[name][0]), dtype.fields[name][1]] for name in dtype.names]
        return {"fields": fields, "size": dtype.itemsize}
    if dtype.subdtype is not None:
        return {"of": _type_code(dtype.subdtype[0]), "shape": list(dtype.subdtype[1])}
    if not _TYPE.match(dtype.str):
        raise NotPlain(dtype.str)
    return dtype.str


def _type_of(code: Any) -> Any:
    """Return the numpy.dtype of its JSON.  Raises NotPlain, and ValueError for fields that do not fit."""
    numpy: Any = sys.modules["numpy"]
    if isinstance(code, str):
        if not _TYPE.match(code):
            raise NotPlain(code)
        return numpy.dtype(code)
    if "fields" not in code:
        return numpy.dtype((_type_of(code["of"]), tuple(code["shape"])))
    names, formats, offsets = zip(*((name, _type_of(of), at) for name, of, at in code["fields"]))
    return numpy.dtype(
        {"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": code["size"]}
    )


def _memory(value: Any) -> Any:
    """Return the bytes of an object of ctypes, None for any other object and if it contains addresses."""
    ctypes: Any = sys.modules.get("ctypes")
    if ctypes is None:
        return None
    data = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union)
    if not isinstance(value, data) or _has_address(type(value), ctypes):
        return None
    return ctypes.string_at(ctypes.addressof(value), ctypes.sizeof(value))


def _has_address(kind: Any, ctypes: Any) -> bool:
    if issubclass(kind, ctypes._SimpleCData):
        return kind._type_ in _POINTERS
    if issubclass(kind, ctypes.Array):
        return _has_address(kind._type_, ctypes)
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        fields = [field for one in kind.__mro__ for field in vars(one).get("_fields_", ())]
        return any(_has_address(field[1], ctypes) for field in fields)
    return True  # a pointer, a function


class Decoded:
    """What was decoded of one value: objects that are in several places, and the existing ones that were changed."""

    def __init__(self) -> None:
        self.by_number: dict[int, Any] = {}
        self.used: dict[int, Any] = {}  # by id


def decode(
    code: Any, tensors: list[Any], existing: Any = None, allowed: Callable[[Any], bool] = names.can_be_kept,
    done: Decoded | None = None,
) -> Any:  # fmt: skip
    """Return the value of `code`: `existing`, changed, if it has the right type.

    `allowed`: whether a named function or class can be in it.  `done`: of the value that this is in.  Raises NotPlain
    if one cannot, or for an unknown kind of value; and what a type raises for an unfit text.
    """
    done = Decoded() if done is None else done
    kind = code.get("#") if isinstance(code, dict) else None
    if kind == "same":
        return done.by_number[code["at"]]
    if kind == "first":
        value = done.by_number[code["of"]] = decode(code["at"], tensors, existing, allowed, done)
        return value
    if _is_mutable(existing):
        if id(existing) in done.used:  # it was in two places, which have two objects now
            existing = None
        done.used[id(existing)] = existing
    value = _decoded(code, tensors, existing, allowed, done)
    if isinstance(code, dict) and code.get("fixed"):
        value.flags.writeable = False
    return value


def _decoded(
    code: Any, tensors: list[Any], existing: Any, allowed: Callable[[Any], bool], done: Decoded
) -> Any:  # fmt: skip
    def inner(part: Any, held: Any = None) -> Any:
        return decode(part, tensors, held, allowed, done)

    if isinstance(code, list):
        # Others can refer to what is in it: a view of an array, for instance.
        fits = isinstance(existing, (list, tuple)) and len(existing) == len(code)
        return _filled(existing, list(map(inner, code, existing if fits else [None] * len(code))))
    if not isinstance(code, dict):
        return code
    kind, content = code["#"], code["at"]
    if kind == "scalar":
        return tensors[content][()]
    if kind == "array":
        return written_into(existing, tensors[content])
    if kind == "numbers":
        found = tensors[content]
        items = list(found) if code["own"] else found.tolist()  # numbers of numpy's, or Python's
        return _filled(existing, _built(code["of"], items, code))
    if kind in _BY_NAME:
        held = existing if kind == "tuple" and isinstance(existing, tuple) else None
        return _filled(existing, _built(kind, inner(content, held), code))
    if kind in _DICT_BY_NAME:
        pairs = [[inner(part) for part in pair] for pair in content]
        return _mapping(existing, kind, pairs, code, allowed)
    if kind == "generator":
        return random_state.write(code["of"], inner(content), existing)
    if kind == "name":
        return _named(content, allowed)
    if kind == "key":
        return jax.key_of(code["of"], inner(content))
    if kind == "tensor":
        library = libraries.of(str(code["of"]))
        if library is None or library.tensor_of is None:
            raise ValueError("%r has no tensors" % (code["of"],))
        return library.tensor_of(inner(content), None)
    if kind == "complex":
        return complex(*content)
    if kind in ("bytes", "bytearray"):
        text = bytes.fromhex(content)
        return _filled(existing, bytearray(text)) if kind == "bytearray" else text
    if kind == "flags":
        return _named(code["of"], _is_enum)(int(content))
    if kind == "member":
        members = getattr(_named(code["of"], _is_enum), "__members__", {})
        return members[content]
    if kind in _BUFFERS:
        is_objects = kind == "objects" and object_kinds.is_array(existing)
        return _BUFFERS[kind](code, inner(content, existing.reshape(-1).tolist() if is_objects else None), existing)
    module, _, name = str(code.get("of")).partition(":")
    if kind != "value" or (module, name) not in _VALUES or not isinstance(content, str):
        raise NotPlain(str(kind))
    made = names.resolved("%s:%s" % (module, name))
    return made.fromisoformat(content) if name in _FROM_ISO else made(content)


def written_into(existing: Any, array: Any) -> Any:
    """Return `existing` with the values of an array, otherwise a copy of that."""
    is_alike = type(existing) is type(array) and existing.shape == array.shape and existing.dtype == array.dtype
    if not is_alike or not existing.flags.writeable:
        return array.copy()
    existing[...] = array
    return existing


def _array_of(code: dict[str, Any], content: Any, existing: Any) -> Any:
    is_same = type(existing) is array and existing.typecode == code["of"]
    found: Any = existing if is_same else array(code["of"])
    del found[:]
    found.frombytes(bytes(content))
    return found


def _stream(code: dict[str, Any], content: Any, existing: Any) -> Any:
    kind: Any = io.StringIO if code["#"] == "StringIO" else io.BytesIO
    made = existing if type(existing) is kind and not existing.closed else kind()
    made.seek(0)
    made.truncate()
    made.write(content if kind is io.StringIO else bytes(content))
    made.seek(code["position"])
    return made


def _typed(code: dict[str, Any], content: Any, existing: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    found = numpy.frombuffer(bytearray(content), _type_of(code["type"])).reshape(code["shape"])
    if code["of"] == "scalar":
        return found[()]
    return written_into(existing, found.view(numpy.recarray) if code["of"] == "recarray" else found)


def _in_memory(_code: dict[str, Any], content: Any, existing: Any) -> Any:
    """Write into the existing object of ctypes, which processes can share.  Raises NotPlain if it has another size."""
    ctypes: Any = sys.modules.get("ctypes")
    now = _memory(existing)
    if now is None or len(now) != len(bytes(content)):
        raise NotPlain("an object of ctypes")
    ctypes.memmove(ctypes.addressof(existing), bytes(content), len(now))
    return existing


def of_objects(items: list[Any], shape: Any) -> Any:
    """Return an array of numpy with these objects."""
    numpy: Any = sys.modules["numpy"]
    found = numpy.empty(len(items), object)
    for index, item in enumerate(items):  # not by a slice: numpy would look into the items
        found[index] = item
    return found.reshape(shape)


def _objects(code: dict[str, Any], items: list[Any], existing: Any) -> Any:
    return written_into(existing, of_objects(items, code["shape"]))


def _masked(_code: dict[str, Any], parts: list[Any], existing: Any) -> Any:
    numpy: Any = sys.modules["numpy"]
    values, mask, fill, hard = (*parts, False)[:4]
    found = numpy.ma.MaskedArray(values, mask=mask, fill_value=fill, hard_mask=hard)
    if type(existing) is type(found) and (existing.shape, existing.dtype) == (found.shape, found.dtype):
        existing.soften_mask()
        existing[...] = found
        existing.mask, existing.fill_value = mask, fill
        return existing.harden_mask() if hard else existing
    return found


_BUFFERS: dict[str, Callable[[dict[str, Any], Any, Any], Any]] = {
    "array.array": _array_of, "StringIO": _stream, "BytesIO": _stream, "typed": _typed, "memory": _in_memory,
    "objects": _objects, "masked": _masked,
}  # fmt: skip


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
    """Return "module:name" of a function or class that a module has under that name, "" for any other value."""
    if not callable(value) or hasattr(value, "cache_info"):
        return ""  # the values in a cache are state
    name = getattr(value, "__name__", "")
    for module in (getattr(value, "__module__", None) or "numpy", "numpy"):
        if isinstance(name, str) and getattr(sys.modules.get(module), name, None) is value:
            return "%s:%s" % (module, name)
    return ""


def _list(value: Any, kind: type, tensors: Arrays) -> Any:
    numbers = _numbers(value)
    if numbers is not None:
        own = not isinstance(next(iter(value)), tuple(_NUMBERS))
        code = {"#": "numbers", "of": kind.__name__, "own": own, "at": len(tensors)}
        tensors.append(numbers)
    else:
        if len(value) > ENTRIES:
            raise NotPlain("too many entries")
        items = [_encoded(item, tensors) for item in value]
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


def _dict(value: Any, kind: type, tensors: Arrays) -> Any:
    if len(value) > ENTRIES:
        raise NotPlain("too many entries")
    if kind not in _DICTS:
        raise NotPlain(kind.__name__)
    pairs = [[_encoded(key, tensors), _encoded(item, tensors)] for key, item in value.items()]
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
    if isinstance(value, list) and type(existing) is not list:
        # Not by a slice: TensorFlow's lists compare what they get then, and tensors have no truth value.
        while len(existing) > len(value):
            existing.pop()
        for index, item in enumerate(value):
            if index >= len(existing):
                existing.append(item)
            elif existing[index] is not item:
                existing[index] = item
    elif isinstance(value, (list, bytearray)):
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


def _mapping(existing: Any, kind: str, pairs: list[Any], code: dict[str, Any], allowed: Callable[[Any], bool]) -> Any:
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
