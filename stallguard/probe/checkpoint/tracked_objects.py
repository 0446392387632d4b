"""The state of objects that a script hands to `stallguard.track`, as JSON and byte buffers, and back into the objects.

Each object is written back in place: compiled steps, schedulers and the script's own names refer to it.  Tensors are
kept as their bytes with their own type (bfloat16 too), so numpy is not needed; all else as encoding.py keeps it, and no
code is run.  What cannot be kept is TypeError when it is handed over.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any, Protocol

from . import encoding, random_state, tensors, tracked_jax, tracked_mlx, tracked_torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TENSOR, _GENERATOR = "\0tensor", "\0generator"  # each begins the tuple that stands for one in what is encoded
_LIBRARIES: dict[str, Any] = {"torch": tracked_torch, "mlx": tracked_mlx, "jax": tracked_jax}
_FIXED = (int, float, complex, str, bytes, tuple, frozenset, type(None))
_WHOLE = (set, deque, bytearray)
_OPEN = object()


class Kept(Protocol):
    """How the state of one object is read and written.  If `write` raises, the object is half written."""

    def read(self) -> Any:
        """Return its state: nested plain values, tensors and generators."""

    def fits(self, state: Any) -> bool:
        """Return whether a state is one of such an object."""

    def write(self, state: Any) -> None:
        """Write a state into it."""


class OwnState:
    """Of an object with `state_dict` and `load_state_dict`."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.read = value.state_dict

    def fits(self, _state: Any) -> bool:
        """Return True: only the object itself knows."""
        return True

    def write(self, state: Any) -> None:
        """Write a state into it."""
        self._value.load_state_dict(filled(None, state))


class PlainState:
    """Of a container, an array, a tensor or a generator, whose content is its state."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def read(self) -> Any:
        """Return it."""
        return self._value

    def fits(self, state: Any) -> bool:
        """Return whether a state is of its type and shape."""
        is_generator = isinstance(state, random_state.GeneratorState)
        shapes = [getattr(one, "shape", None) for one in (state, self._value)]
        return is_generator or (type(state) is type(self._value) and shapes[0] == shapes[1])

    def write(self, state: Any, filling: Filling | None = None) -> None:
        """Write a state into it.  `filling`: of all objects, which can hold the same ones."""
        if (filling or Filling()).of(self._value, state) is not self._value:
            raise ValueError("a %s of another type than when the checkpoint was made" % type(self._value).__name__)


class TreesState(PlainState):
    """Of a dict or list that holds arrays and trees of JAX."""

    def __init__(self, value: Any, trees: tracked_jax.Trees) -> None:
        super().__init__(value)
        self._trees = trees

    def read(self) -> Any:
        """Return what it holds, and what it held when it was handed over."""
        return {"begun": self._trees.lines, "now": self._trees.read(self._value)}

    def fits(self, state: Any) -> bool:
        """Return whether a state is of one that began with the same trees and arrays."""
        return bool(state["begun"] == self._trees.lines)

    def write(self, state: Any, filling: Filling | None = None) -> None:
        """Write a state into it.  `filling`: see PlainState."""
        (filling or Filling()).of(self._value, self._trees.restored(state["now"]))
        self._trees.look(self._value)

    @property
    def is_unchanged(self) -> bool:
        """Whether it holds the very arrays that it got at first, or at a resume."""
        return self._trees.is_as_seen(self._value)


def kept(value: Any) -> Kept:
    """Return how an object is kept.  Raises TypeError with the reason if it cannot be."""
    for library in (tracked_torch, tracked_mlx):
        found: Kept | None = library.kept(value)
        if found is not None:
            return found
    if tracked_jax.is_mutable(value):
        held = [value]
        return TreesState(held, tracked_jax.Trees(held))
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return OwnState(value)
    numpy = sys.modules.get("numpy")
    is_changed = isinstance(value, (dict, list, *_WHOLE)) or tracked_torch.is_tensor(value)
    is_array = numpy is not None and isinstance(value, numpy.ndarray)
    if is_changed or is_array or random_state.read(value) is not None:
        trees = tracked_jax.trees_in(value)
        return PlainState(value) if trees is None else TreesState(value, trees)
    if isinstance(value, _FIXED) or tracked_mlx.is_tensor(value) or tracked_jax.is_tree(value):
        raise TypeError("its value cannot be changed in place; hand over a dict that holds it")
    raise TypeError("it has no state_dict and load_state_dict; hand over a dict that holds its state")


def generators_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the random number generators among values and what their dicts, lists and tuples hold, in their order."""
    for one in values:
        if isinstance(one, (dict, list, tuple)):
            yield from generators_in(one.values() if isinstance(one, dict) else one)
        elif not isinstance(one, _FIXED) and random_state.read(one) is not None:
            yield one


def named_in(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the functions and classes in what is handed over: it is kept which they are, but not what they hold."""
    for one in values:
        if isinstance(one, (dict, list, tuple)):
            yield from named_in(one.values() if isinstance(one, dict) else one)
        elif isinstance(one, (type, types.FunctionType)):
            yield one


def filled(existing: Any, state: Any) -> Any:
    """Return `existing` with the content of `state` if both are mutable and alike, otherwise `state`."""
    return Filling().of(existing, state)


class Filling:
    """Writes states into existing objects.

    An object that was in two places is one object in both; two objects of a state are never written into one.
    """

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}  # by id of a state, which the caller keeps
        self._used: dict[int, Any] = {}  # by id, the existing objects that have a state

    def of(self, existing: Any, state: Any) -> Any:
        """Return `existing` with the content of `state` if both are mutable and alike, otherwise `state`."""
        if isinstance(state, random_state.GeneratorState):
            return random_state.write(state.of, state.state, existing)
        if type(state) is tuple:
            return self._tuple(existing, state)
        if isinstance(state, _FIXED):
            return state
        if id(state) not in self._made:
            if id(existing) in self._used:
                existing = None
            self._used[id(existing)] = existing
            self._made[id(state)] = self._content(existing, state)
        return self._made[id(state)]

    def _items(self, existing: Iterable[Any], state: Iterable[Any]) -> list[Any]:
        return [self.of(old, one) for old, one in zip(itertools.chain(existing, itertools.repeat(None)), state)]

    def _tuple(self, existing: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        found = tuple(self._items(existing if type(existing) is tuple else (), state))
        is_same = type(existing) is tuple and len(existing) == len(found)
        return existing if is_same and all(old is one for old, one in zip(existing, found)) else found

    def _content(self, existing: Any, state: Any) -> Any:
        is_alike = type(existing) is type(state)
        if isinstance(state, dict):
            target = existing if is_alike else state
            merged = {key: self.of(target.get(key), one) for key, one in state.items()}
            target.clear()
            target.update(merged)
            return target
        if isinstance(state, list):
            target = existing if is_alike else state
            target[:] = self._items(list(target), list(state))
            return target
        if isinstance(state, _WHOLE):
            if isinstance(state, deque):
                is_alike = is_alike and state.maxlen == existing.maxlen
                state = deque(self._items(existing if is_alike else (), state), state.maxlen)
            if not is_alike:
                return state
            existing.clear()
            (existing.update if isinstance(state, set) else existing.extend)(state)
            return existing
        if type(state).__name__ == "ndarray":
            if _has_objects(state):
                olds = existing.reshape(-1).tolist() if _has_objects(existing) else ()
                state = encoding.of_objects(self._items(olds, state.reshape(-1).tolist()), state.shape)
            return encoding.written_into(existing, state)
        if isinstance(state, tracked_jax.Stored):
            return tracked_jax.placed(state)
        return tracked_torch.written_into(existing, state)


def _has_objects(value: Any) -> bool:
    return bool(type(value).__name__ == "ndarray" and value.dtype == object)


class Packed:
    """Collects the state of a training: arrays of numpy, and the bytes of tensors."""

    def __init__(self, dry: bool = False) -> None:
        """`dry`: only find out whether it can be kept; no bytes are read, of a GPU for instance."""
        self._dry = dry
        self._arrays: list[Any] = []
        self._tensors: list[dict[str, Any]] = []
        self._bytes: list[Any] = []
        self._made: dict[int, tuple[Any, Any]] = {}  # by id: an object, what stands for it (_OPEN: not made)

    def code(self, state: Any) -> Any:
        """Return JSON for nested values.  Raises what the values raise, and encoding.NotPlain."""
        return encoding.encode(self._marked(state), self._arrays)

    def facts(self, code: Any) -> tuple[dict[str, Any], list[Any]]:
        """Return the facts and buffers of a checkpoint whose JSON is `code`."""
        meta, blobs = tensors.pack(self._arrays) if self._arrays else ([], [])
        return {"code": code, "arrays": meta, "tensors": self._tensors}, [*blobs, *self._bytes]

    def _marked(self, value: Any) -> Any:
        """Return what stands for a value in what is encoded: the same for one that is in several places."""
        if isinstance(value, _FIXED) and not isinstance(value, tuple):
            return value
        found = self._made.get(id(value))
        if found is None:
            self._made[id(value)] = (value, _OPEN)
            found = self._made[id(value)] = (value, self._content(value))
        if found[1] is _OPEN:
            raise encoding.NotPlain("a %s that contains itself" % type(value).__name__)
        return found[1]

    def _content(self, value: Any) -> Any:
        name = next((name for name, one in _LIBRARIES.items() if one.is_tensor(value)), "")
        if name:
            facts, content = _LIBRARIES[name].content(value, self._dry)
            self._tensors.append({"of": name, **facts})
            self._bytes.append(content)
            return (_TENSOR, len(self._tensors) - 1)
        is_state = isinstance(value, random_state.GeneratorState)
        is_plain = isinstance(value, (dict, list, tuple, str, int, float))
        state = value if is_state else None if is_plain else random_state.read(value)
        if state is not None:
            return (_GENERATOR, state[0], self._marked(state[1]))
        kind = type(value)
        if isinstance(value, dict):
            pairs = {key: self._marked(one) for key, one in value.items()}
            if isinstance(value, defaultdict):
                return defaultdict(value.default_factory, pairs)
            return OrderedDict(pairs) if kind is OrderedDict else pairs if kind is dict else value
        if kind in (list, tuple):
            return kind([self._marked(one) for one in value])
        if _has_objects(value) and value.size <= encoding.ENTRIES:
            return encoding.of_objects([self._marked(one) for one in value.reshape(-1).tolist()], value.shape)
        return deque(map(self._marked, value), value.maxlen) if kind is deque else value


def unpacked(facts: dict[str, Any], blobs: list[Any]) -> Any:
    """Return the nested values of a checkpoint, with a GeneratorState for each random number generator.

    Raises what damaged or foreign facts raise: generations.DAMAGE and encoding.NotPlain.
    """
    count = len(facts["arrays"])
    arrays = tensors.unpack(facts["arrays"], blobs[:count]) if count else []
    made = [_LIBRARIES[one["of"]].made(one, blob) for one, blob in zip(facts["tensors"], blobs[count:])]
    seen: dict[int, Any] = {}  # containers, which can be in several places

    def unmarked(value: Any) -> Any:
        if isinstance(value, tuple) and value[:1] == (_TENSOR,):
            return made[value[1]]
        if isinstance(value, tuple) and value[:1] == (_GENERATOR,):
            return random_state.GeneratorState(value[1], unmarked(value[2]))
        if isinstance(value, tuple):
            return type(value)(unmarked(one) for one in value)
        has_objects = _has_objects(value)
        if not (has_objects or isinstance(value, (dict, list, deque))) or id(value) in seen:
            return value
        seen[id(value)] = value
        places = value.reshape(-1) if has_objects else value
        for key, one in list(places.items() if isinstance(value, dict) else enumerate(places)):
            places[key] = unmarked(one)
        return value

    return unmarked(encoding.decode(facts["code"], arrays))
