"""Keeps objects of libraries whose state no attribute shows, as pickles that only their own user can have made.

A table of pandas, an image, a sparse matrix: their values are in memory of compiled code, so a walk over attributes
(object_walk.py) finds nothing, and "nothing found" is not "without state".  What such an object is, its library says
through the protocol of copies ("Pickling Class Instances", the library reference of Python).  So:

- Its pickle is its state: if the pickle changes, the object has changed.
- It is kept only as a whole.  An object in it that the script or another place of the training can refer to (an object
  of the script's classes, a tensor, a random generator, a file) would come back as a second one.  Then there is no
  pickle, and the walk looks at the attributes instead.
- It comes back into the object that exists, because others refer to it, if its class allows that.

A pickle can call any function, and a checkpoint can be another user's.  So each has a signature (keyed BLAKE2b, RFC
7693) with a key that only this user can read; the supervisor names its file.  Without a key nothing is kept so, and
without the right signature nothing is loaded.
"""

from __future__ import annotations

import copyreg
import functools
import os
import pickle
import types
import zlib
from _blake2 import blake2b  # hashlib also loads OpenSSL, which few trainings need
from _operator import _compare_digest
from typing import Any, Callable

from .. import settings
from . import object_kinds, random_state

_PROTOCOL = 5  # the newest of Python 3.9
_LEAST_KEY, _MOST_KEY = 16, 64  # bytes, the most by BLAKE2b
_PLAIN = frozenset((int, float, str, bytes, bool, type(None), tuple, complex))
_MUTABLE = (list, dict, set, bytearray)
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)  # in a pickle


class NoPickle(Exception):
    """An object whose state no pickle shows.  `parts`: only because something in it has a place of its own."""

    def __init__(self, why: str, parts: bool = False) -> None:
        super().__init__(why)
        self.parts = parts


class TooLarge(Exception):
    """A pickle that has more bytes than are allowed."""


class Digest:
    """A file that keeps the checksum of what is written, and refuses more than `most` bytes."""

    def __init__(self, most: float) -> None:
        self.most, self.size, self.check = most, 0, 0

    def write(self, data: Any) -> int:
        """Add bytes; raise TooLarge beyond the limit."""
        # A large array comes as it is, in the order of its memory.
        data = data.raw() if isinstance(data, pickle.PickleBuffer) else data
        self.size += len(data)
        if self.size > self.most:
            raise TooLarge
        self.check = zlib.crc32(data, self.check)
        return len(data)


class _Pieces:
    def __init__(self) -> None:
        self.pieces: list[Any] = []

    def write(self, data: Any) -> int:
        data = bytes(data.raw() if isinstance(data, pickle.PickleBuffer) else data)
        self.pieces.append(data)
        return len(data)


class _Pickler(pickle.Pickler):
    def __init__(self, file: Any, whole: Any, is_known: Callable[[Any], bool]) -> None:
        super().__init__(file, _PROTOCOL)
        self._whole, self._is_known = whole, is_known
        self.inside: list[Any] = []  # containers; the pickler refers to each, so no id is used twice
        self.parts = ""  # the class of one that has a place of its own

    def persistent_id(self, value: Any) -> Any:
        """Return a name in place of an object that has a place of its own: such a pickle is not used."""
        kind = type(value)
        if kind in _PLAIN or isinstance(value, _BY_NAME):
            return None
        if object_kinds.is_handle(kind):
            raise NoPickle("it contains a %s" % kind.__name__)
        if value is self._whole:
            return None
        # The walk finds these if the script refers to them.
        is_framework = object_kinds.is_variable(value) or object_kinds.is_tensor(value) or object_kinds.family(value)
        is_part = is_framework or not object_kinds.is_librarys(kind) or random_state.read(value) is not None
        if is_part or self._is_known(value):
            self.parts = kind.__name__
            return self.parts
        if isinstance(value, _MUTABLE):
            self.inside.append(value)
        return None


def write(value: Any, file: Any, is_known: Callable[[Any], bool]) -> _Pickler:
    """Write the pickle of an object; return the pickler, with the containers `inside`.

    `is_known`: whether an object has a place in the walk already.  Raises NoPickle, and TooLarge.
    """
    pickler = _Pickler(file, value, is_known)
    try:
        pickler.dump(value)
        reduced = _reduced(value)
    except (NoPickle, TooLarge):
        raise
    except Exception as error:  # code of any library
        raise NoPickle(str(error)) from error
    # A name, or the call of a function that finds it by names, as of a logger.
    finds = isinstance(reduced, str) or (isinstance(reduced[0], types.FunctionType) and not any(reduced[2:]))
    if finds and all(isinstance(one, str) for one in reduced[1]):
        raise NoPickle("its pickle is only its name")
    if pickler.parts:
        raise NoPickle("it contains a %s" % pickler.parts, parts=True)
    return pickler


def _reduced(value: Any) -> Any:
    """Return what the protocol of pickles shows of a value: a name, or (callable, arguments, state, ...)."""
    reduce = copyreg.dispatch_table.get(type(value))
    return reduce(value) if reduce is not None else value.__reduce_ex__(_PROTOCOL)


def dump(value: Any) -> bytes:
    """Return the pickle of an object that `write` accepted."""
    file = _Pieces()
    write(value, file, lambda _value: False)
    return b"".join(file.pieces)


def load(data: Any) -> Any:
    """Return the object of a pickle whose signature was verified.  Raises what its classes raise."""
    return pickle.loads(bytes(data))  # noqa: S301 - signed with the key of this user


def restored(existing: Any, made: Any) -> Any:
    """Return `existing` with the state of `made` if its class allows that, otherwise `made`."""
    kind = type(made)
    if type(existing) is not kind or _has_hash_of_value(existing):
        return made
    if isinstance(existing, (list, bytearray)):
        existing[:] = made
    elif isinstance(existing, (dict, set)):
        existing.clear()
        existing.update(made)
    elif object_kinds.hides_state(kind):
        now, wanted = _reduced(existing), _reduced(made)
        is_state = any(one is not None for one in wanted[2:3]) and not any(wanted[3:])
        if not is_state or now[0] is not wanted[0] or now[1] != wanted[1] or not hasattr(kind, "__setstate__"):
            return made
        existing.__setstate__(wanted[2])
        return existing if dump(existing) == dump(made) else made
    give_attributes(existing, made)
    return existing


def _has_hash_of_value(value: Any) -> bool:
    """Return whether an object must not be changed, because it can be a key, or be in a cache of its library."""
    if getattr(type(value), "__hash__", None) in (None, object.__hash__):
        return False
    try:
        return hash(value) not in (id(value), object.__hash__(value))  # torch's own is the first
    except Exception:  # a frozen object with a list in it
        return True


def give_attributes(target: Any, source: Any) -> None:
    """Give an object the attributes of another one of its class, and no others."""
    if hasattr(target, "__dict__"):
        vars(target).clear()
        vars(target).update(vars(source))
    for name in [name for one in type(source).__mro__ for name in object_kinds.slots_of(one)]:
        if hasattr(source, name):
            object.__setattr__(target, name, getattr(source, name))
        elif hasattr(target, name):
            object.__delattr__(target, name)


# ---- signatures ---------------------------------------------------------------------------------------------


def signature(data: Any) -> str:
    """Return the signature of a pickle, "" without a key."""
    key = _key()
    return blake2b(data, key=key, digest_size=32, person=b"pickle").hexdigest() if key else ""


def is_ours(data: Any, found: Any) -> bool:
    """Return whether a pickle was made by a training of this user."""
    wanted = signature(data)
    return bool(wanted) and isinstance(found, str) and _compare_digest(wanted.encode(), found.encode())


def is_possible() -> bool:
    """Return whether pickles can be signed."""
    return bool(_key())


def _key() -> bytes:
    return _read(settings.of(os.environ).key)


@functools.cache
def _read(path: str) -> bytes:
    """Return the key in a file, b"" if there is none, or not one that only this user can read."""
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
                return b""
            key = file.read(_MOST_KEY)
    except OSError:
        return b""
    return key if len(key) >= _LEAST_KEY else b""
