"""Reads the state of random generators that are objects (Python's, numpy's, torch's), and writes it back in place.

TensorFlow's and Keras' generators have their state in a variable; see variables.py.
"""

from __future__ import annotations

import sys
from typing import Any


def read(value: Any) -> Any:
    """Return the state of a generator as plain values and arrays, None for any other object."""
    kind = type(value)
    random = sys.modules.get("random")
    if random is not None and isinstance(value, random.Random):
        return None if isinstance(value, random.SystemRandom) else value.getstate()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        if isinstance(value, numpy.Generator):
            return value.bit_generator.state
        if isinstance(value, numpy.BitGenerator):
            return value.state
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
    return made


def _class(numpy: Any, kind: Any) -> Any:
    """Return a generator's class of numpy.random; nothing else of that module: a checkpoint only names it."""
    found = getattr(numpy, kind, None) if isinstance(kind, str) else None
    if isinstance(found, type) and issubclass(found, (numpy.BitGenerator, numpy.RandomState)):
        return found
    raise LookupError("no generator of the kind %s can be made" % kind)
