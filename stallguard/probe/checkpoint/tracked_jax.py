"""What `stallguard.track` keeps of JAX: arrays as their bytes, and registered trees as the values in them.

A function of JAX returns new arrays, so a script hands over a dict or a list that holds its state, and assigns to that.
What is in it are arrays, typed keys, plain containers and trees of registered classes: the NamedTuples of optax, Flax's
TrainState and FrozenDict, modules of Equinox.  Of such a tree the leaves are kept.  A resume puts them into the tree
that the script holds when it hands its state over, so no class is made by its name, and no code is run.  Objects of
flax.nnx change in place; their variables are kept, and get their values back in the same object.

A checkpoint is used only if the trees and arrays that are handed over are as they were then: how many there are, where,
the text of their structure, shapes and types.  What is added later, such as a list of losses, can be any array, plain
container, or tree of a structure that was handed over.

An array goes to the device, or the shards, of the one that was handed over at its place, and is committed to it if that
was.  A weak type is kept: JAX computes in other types without it, and compiles anew.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any
from weakref import ref

from ..frameworks.jax import data_of_key, is_key, key_of
from . import tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TREE, _LIVE = "\0tree", "\0live"  # each begins the tuple that stands for one in what is encoded
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of functions, in the text of a structure


class Stored:
    """An array as a checkpoint has it, until it is known where it goes."""

    __slots__ = ("facts", "values")

    def __init__(self, facts: dict[str, Any], values: Any) -> None:
        self.facts = facts
        self.values = values


def is_tensor(value: Any) -> bool:
    """Return whether a value is an array of JAX, or one of a checkpoint."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, (getattr(jax, "Array", Stored), Stored))


def content(array: Any, dry: bool) -> tuple[dict[str, Any], Any]:
    """Return facts of an array and its bytes (none if `dry`)."""
    if isinstance(array, Stored):
        return array.facts, memoryview(array.values.reshape(-1).view("u1"))
    facts: dict[str, Any] = {"weak": bool(getattr(array, "weak_type", False))}
    if dry:
        return facts, b""
    if is_key(array):
        facts["key"], values = data_of_key(array)
    else:
        values = sys.modules["numpy"].asarray(array)
    (meta,), (blob,) = tensors.pack([values])
    return {**facts, "array": meta}, blob


def made(facts: dict[str, Any], blob: Any) -> Stored:
    """Return the array that `content` read, in memory of its own: JAX can take that over."""
    return Stored(facts, tensors.unpack([facts["array"]], [blob])[0].copy())


def copied(array: Any) -> Stored:
    """Return an array apart from JAX, which ends one that is donated."""
    return made(*content(array, dry=False))


class Place:
    """Where an array was when it was handed over."""

    __slots__ = ("committed", "sharding")

    def __init__(self, array: Any) -> None:
        self.sharding = array.sharding
        self.committed = bool(getattr(array, "committed", getattr(array, "_committed", False)))


def placed(stored: Stored, place: Place | None = None) -> Any:
    """Return the array of a checkpoint at a place, else on the default device.

    Raises TypeError if this process has no arrays of its type.
    """
    jax: Any = sys.modules["jax"]
    device = None if place is None or place.committed else next(iter(place.sharding.device_set))
    with jax.default_device(device):
        array = stored.values if place is not None and place.committed else jax.numpy.array(stored.values)
        if "key" in stored.facts:
            array = key_of(stored.facts["key"], array)
        elif stored.facts["weak"]:
            # Of Python's number is the only way to a weak type that JAX documents; a write into it keeps that.
            weak = jax.numpy.full(array.shape, array.dtype.type(0).item())
            array = weak.at[...].set(array) if weak.dtype == array.dtype else array
        if place is not None and place.committed:
            array = jax.device_put(array, place.sharding)
    if "key" not in stored.facts and array.dtype != stored.values.dtype:
        raise TypeError("arrays of %s, which this process does not have" % stored.values.dtype)
    return array


def is_mutable(value: Any) -> bool:
    """Return whether a value is an object of flax.nnx, whose variables change in place."""
    nnx = sys.modules.get("flax.nnx")
    kind = getattr(nnx, "Pytree", getattr(nnx, "Object", None))
    return kind is not None and isinstance(value, kind)


def is_tree(value: Any) -> bool:
    """Return whether a value is of JAX but no container that can be changed in place."""
    jax = sys.modules.get("jax")
    return jax is not None and hasattr(jax, "tree_util") and (is_tensor(value) or _flat(value) is not None)


def trees_in(value: Any) -> Trees | None:
    """Return what a dict or list holds of JAX, None if nothing."""
    found = Trees(value) if hasattr(sys.modules.get("jax"), "tree_util") and _items(value) is not None else None
    return found if found is not None and found.lines else None


def keys_in(values: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (container, index, key) for each key of jax.random in dicts and lists, and in those that these hold."""
    for one in values:
        items = _items(one) if isinstance(one, (dict, list)) else None
        for at, held in items or ():
            if _can_be_key(held):
                yield one, at, held
        yield from keys_in([held for _, held in items or ()])


def _can_be_key(value: Any) -> bool:
    """Return whether a value is a key, or has the form of one without a type of its own."""
    return is_tensor(value) and (is_key(value) or (value.dtype == "uint32" and value.shape in ((2,), (4,))))


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the items of a plain container, None for anything else."""
    kind = type(value)
    if kind in (dict, OrderedDict, defaultdict):
        return list(value.items())
    return list(enumerate(value)) if kind in (list, tuple, deque) else None


def _alike(value: Any, items: list[tuple[Any, Any]]) -> Any:
    """Return a plain container like `value` with other items."""
    kind: Any = type(value)
    if kind is defaultdict:
        return defaultdict(value.default_factory, items)
    if kind in (dict, OrderedDict):
        return kind(items)
    return deque([one for _, one in items], value.maxlen) if kind is deque else kind(one for _, one in items)


def _flat(value: Any) -> tuple[Any, list[Any]] | None:
    """Return structure and leaves of a tree of a registered class, None for a leaf."""
    trees: Any = sys.modules["jax"].tree_util
    if is_mutable(value):
        value = sys.modules["flax.nnx"].state(value)
    elif value is None or is_tensor(value) or trees.all_leaves([value]):
        return None
    leaves, structure = trees.tree_flatten(value, is_leaf=is_mutable)
    return structure, leaves


class Held:
    """A tree as it was handed over."""

    def __init__(self, structure: Any, leaves: list[Any], own: Any) -> None:
        """`leaves`: what stands at their places; `own`: the object of flax.nnx itself, None for a tree."""
        self.structure = structure
        self.leaves = leaves
        self.own = own

    def is_alike(self, structure: Any, own: Any) -> bool:
        """Return whether values of this structure can be put into it."""
        return self.own is own and bool(self.structure == structure)


class Trees:
    """What a container that is handed over holds of JAX, and how that is found again in a later attempt."""

    def __init__(self, value: Any) -> None:
        self.lines: list[str] = []  # one for each tree and array
        self._held: list[Held] = []
        self._start = self._begun(value, "")
        self._seen: list[Any] = []
        self.look(value)

    def _begun(self, value: Any, path: str) -> Any:
        """Return what stands at the place of a value: by key for a container, Place, Held, or a leaf that is no state.

        Of a container no value is kept: the first arrays of a training can be half of its memory.
        """
        if is_tensor(value):
            self.lines.append("%s %s%s" % (path, value.dtype, list(value.shape)))
            return Place(value)
        items = _items(value)
        if items is not None:
            return {key: self._begun(one, "%s[%r]" % (path, key)) for key, one in items}
        flat = _flat(value)
        if flat is None:
            return value if callable(value) else None
        structure, leaves = flat
        self.lines.append("%s %s" % (path, _ADDRESS.sub("", str(structure))))
        own = value if is_mutable(value) else None
        held = Held(structure, [self._begun(one, "%s.%d" % (path, at)) for at, one in enumerate(leaves)], own)
        self._held.append(held)
        return held

    def read(self, value: Any) -> Any:
        """Return the container with a tuple for each tree.  Raises TypeError for one that was not handed over."""
        return self._marked(value, self._start, {})

    def _marked(self, value: Any, start: Any, made: dict[int, tuple[Any, Any]]) -> Any:
        """Return the same of a part.  `made`: by id of a container, which can be in several places, it and its copy."""
        items = _items(value)
        if items is not None:
            if id(value) not in made:
                begun = start if isinstance(start, dict) else {}
                parts = [(key, self._marked(one, begun.get(key), made)) for key, one in items]
                made[id(value)] = value, _alike(value, parts)
            return made[id(value)][1]
        flat = _flat(value)
        if flat is None:
            return value
        own = value if is_mutable(value) else None
        # Two trees can look alike and differ in what they compute with: that at the same place comes first.
        alike = [one for one in (start, *self._held) if isinstance(one, Held) and one.is_alike(flat[0], own)]
        if not alike:
            raise TypeError("a %s whose structure is that of nothing that was handed over" % type(value).__name__)
        leaves = [
            (_LIVE,) if callable(one) and not is_mutable(one) else self._marked(one, begun, made)
            for one, begun in zip(flat[1], alike[0].leaves)
        ]
        return (_TREE, self._held.index(alike[0]), leaves)

    def restored(self, state: Any) -> Any:
        """Return the container that `read` returned, with its trees; objects of flax.nnx get their values here."""
        return self._unmarked(state, self._start, {})

    def _unmarked(self, state: Any, start: Any, made: dict[int, tuple[Any, Any]]) -> Any:
        if isinstance(state, Stored):
            return placed(state, start if isinstance(start, Place) else None)
        mark = state[0] if type(state) is tuple and state and isinstance(state[0], str) else ""
        if mark == _LIVE:
            return start
        if mark == _TREE:
            held = self._held[state[1]]
            leaves = [self._unmarked(one, begun, made) for one, begun in zip(state[2], held.leaves)]
            tree = sys.modules["jax"].tree_util.tree_unflatten(held.structure, leaves)
            if held.own is None:
                return tree
            sys.modules["flax.nnx"].update(held.own, tree)
            return held.own
        items = _items(state)
        if items is None:
            return state
        if id(state) not in made:
            begun = start if isinstance(start, dict) else {}
            parts = [(key, self._unmarked(one, begun.get(key), made)) for key, one in items]
            made[id(state)] = state, _alike(state, parts)
        return made[id(state)][1]

    def look(self, value: Any) -> None:
        """Note which arrays the container holds."""
        self._seen = [ref(one) for one in _arrays(value)]

    def is_as_seen(self, value: Any) -> bool:
        """Return whether the container holds the very arrays that it held at the last look."""
        now = list(_arrays(value))
        return bool(now) and len(now) == len(self._seen) and all(one() is array for one, array in zip(self._seen, now))


def _arrays(value: Any) -> Iterator[Any]:
    if is_tensor(value):
        yield value
        return
    items = _items(value)
    flat = None if items is not None else _flat(value)
    for one in [one for _, one in items] if items is not None else flat[1] if flat is not None else ():
        yield from _arrays(one)
