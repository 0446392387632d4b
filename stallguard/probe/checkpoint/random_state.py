"""Reads and sets random number generators: the global ones of the imported libraries, and those that are objects.

Of objects: Python's, numpy's and torch's; their state is written back in place.  TensorFlow's and Keras' generators
have their state in a variable; see variables.py.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any

from .. import libraries
from ..frameworks import keras, tensorflow


def capture() -> dict[str, Any]:
    """Return the state of every generator that exists, as plain values and arrays."""
    found = {}
    for library in libraries.imported():
        for name, (read, _) in library.generators.items():
            value = read()
            if value is not None:
                found[name] = value
    return found


def restore(states: dict[str, Any]) -> None:
    """Set the generators that are in both `states` and this process."""
    for library in libraries.imported():
        for name, (_, write) in library.generators.items():
            if name in states:
                write(states[name])


def variables() -> list[Any]:
    """Return the variables that hold the states of the frameworks' generators."""
    found = [getattr(tensorflow.global_generator(), "state", None), keras.global_generator()]
    return [one for one in found if hasattr(one, "__dict__")]


def digest() -> str:
    """Return a checksum of the state of every generator that exists."""
    return "%08x" % zlib.crc32(_text(sorted(capture().items())).encode())


def same(one: dict[str, Any], other: dict[str, Any], name: str) -> bool:
    """Return whether generator `name` is in the same state in both."""
    return _text(one.get(name)) == _text(other.get(name))


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "(%s)" % ",".join(_text(item) for item in value)
    return str(value.tobytes()) if hasattr(value, "tobytes") else repr(value)


_SPAWNED = "spawned"  # how many generators were made from one


def read(value: Any) -> Any:
    """Return the state of a generator as plain values and arrays, None for any other object."""
    kind = type(value)
    random = sys.modules.get("random")
    if random is not None and isinstance(value, random.Random):
        return None if isinstance(value, random.SystemRandom) else value.getstate()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        if isinstance(value, (numpy.Generator, numpy.BitGenerator)):
            bits = getattr(value, "bit_generator", value)
            spawned = getattr(getattr(bits, "seed_seq", None), "n_children_spawned", 0)
            return {**bits.state, _SPAWNED: spawned}
        if isinstance(value, numpy.RandomState):
            return value.get_state()
    if kind.__module__ == "torch._C" and kind.__name__ == "Generator":
        return value.get_state().numpy()
    return None


def write(kind: str, state: Any, existing: Any) -> Any:
    """Return `existing` with the state that `read` returned; a new generator if `existing` is not of that kind.

    Raises LookupError for a kind that cannot be made, and what the libraries raise for a state that does not fit.
    """
    numpy = sys.modules.get("numpy.random")
    made: Any
    spawned = 0
    if isinstance(state, dict):
        state = dict(state)
        spawned = state.pop(_SPAWNED, 0)
    if type(existing).__name__ == kind:
        made = existing
    elif kind == "Random" and "random" in sys.modules:
        made = sys.modules["random"].Random(0)
    elif kind == "Generator" and isinstance(state, dict):
        made = numpy.Generator(_class(numpy, state["bit_generator"])(0))  # type: ignore[union-attr]
    else:
        made = _class(numpy, kind)(0)
    if hasattr(made, "setstate"):
        made.setstate((state[0], tuple(state[1]), state[2]))
    elif kind == "Generator" and type(made).__module__ == "torch._C":
        made.set_state(sys.modules["torch"].from_numpy(state))
    elif kind == "Generator":
        made.bit_generator.state = state
    elif kind == "RandomState":
        made.set_state(tuple(state))
    else:
        made.state = state
    seeds = getattr(getattr(made, "bit_generator", made), "seed_seq", None)
    if spawned and seeds is not None and spawned > seeds.n_children_spawned:
        seeds.spawn(spawned - seeds.n_children_spawned)  # its count can be changed in no other way
    return made


def _class(numpy: Any, kind: Any) -> Any:
    """Return a generator's class of numpy.random; a checkpoint only names it."""
    found = getattr(numpy, kind, None) if isinstance(kind, str) else None
    if isinstance(found, type) and issubclass(found, (numpy.BitGenerator, numpy.RandomState)):
        return found
    raise LookupError("no generator of the kind %s can be made" % kind)
