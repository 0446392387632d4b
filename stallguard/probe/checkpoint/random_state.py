"""Reads and sets random number generators: the global ones of the imported libraries, and those that are objects.

The libraries' records say how; the state of an object is written back in place.  TensorFlow's and Keras' generators
have their state in a variable; see variables.py.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from .. import libraries
from ..frameworks import keras, tensorflow


class GeneratorState(NamedTuple):
    """The state of a generator that is an object, as `read` returns it."""

    of: str
    state: Any


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
    return "%08x" % zlib.crc32(text(sorted(capture().items())).encode())


def same(one: dict[str, Any], other: dict[str, Any], name: str) -> bool:
    """Return whether generator `name` is in the same state in both."""
    return text(one.get(name)) == text(other.get(name))


def text(value: Any) -> str:
    """Return a state as text, whole."""
    if isinstance(value, (tuple, list)):
        return "(%s)" % ",".join(text(item) for item in value)
    return str(value.tobytes()) if hasattr(value, "tobytes") else repr(value)


def read(value: Any) -> tuple[str, Any] | None:
    """Return ("library:class", state as plain values and arrays) of a generator, None for any other object."""
    for kind in type(value).__mro__:
        library = libraries.of_class(kind)
        if library is not None and library.own_generators is not None:
            state = library.own_generators[0](value)
            return None if state is None else ("%s:%s" % (library.name, type(value).__name__), state)
    return None


def write(of: str, state: Any, existing: Any) -> Any:
    """Return `existing` with the state that `read` returned; a new generator if `existing` is not of that kind.

    Raises LookupError for a kind that cannot be made, and what the libraries raise for a state that does not fit.
    """
    name, _, kind = str(of).partition(":")
    library = libraries.of(name)
    if library is None or library.own_generators is None:
        raise LookupError("%s has no generators" % name)
    return library.own_generators[1](kind, state, existing if type(existing).__name__ == kind else None)
