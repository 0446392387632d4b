"""Reads and sets the global random number generators of the process: those of libraries that are imported."""

from __future__ import annotations

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
