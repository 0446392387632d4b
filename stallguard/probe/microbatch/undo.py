"""Restores what a comparison of rows changes besides the framework's variables.

The process' random generators, and the attributes of layers and models whose classes are the script's: a counter, a
list that grows.  Objects of Keras' own classes keep nothing in their attributes from one step to the next.
"""

from __future__ import annotations

import warnings
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import libraries
from ..checkpoint import random_state
from . import batch_structure

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = (list, dict, set, deque)  # their contents are restored too


@contextmanager
def undone(model: Any) -> Iterator[None]:
    """Restore generators and attributes after the body, and suppress its warnings: the training repeats them."""
    attributes = Attributes(model)
    before = random_state.capture()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            random_state.restore(before)
            attributes.restore()


class Attributes:
    """The attributes of the model and its layers, if their classes are the script's."""

    def __init__(self, model: Any) -> None:
        self._before = [
            (owner, {name: (value, _contents(value)) for name, value in vars(owner).items()})
            for owner in own_objects(model)
        ]

    def restore(self) -> None:
        """Restore attributes that hold another object now, and the contents of lists, dicts, sets and deques."""
        for owner, before in self._before:
            own = vars(owner)
            for name in [name for name in own if name not in before]:
                del own[name]
            for name, (value, contents) in before.items():
                if own.get(name) is not value:
                    own[name] = value
                for container, kind, items in contents:
                    _refill(container, kind, items)


def own_objects(model: Any) -> list[Any]:
    """Return the model and the layers whose class the script, or a library on top of Keras, defines."""
    every = [model, *batch_structure.layers(model)]
    return [owner for owner in every if libraries.of_class(type(owner)) is None]


def _contents(value: Any) -> list[tuple[Any, Any, list[Any]]]:
    """Return (container, its kind, a copy of its items) of what an attribute holds.

    The frameworks replace lists and dicts in attributes: Keras 3 by subclasses, TensorFlow by wrappers.
    """
    parts = [getattr(value, "__wrapped__", value)]
    if isinstance(value, list):
        parts.append(getattr(value, "_storage", None))
    return [(part, kind, _items(part, kind)) for part in parts for kind in KEPT if isinstance(part, kind)]


def _items(container: Any, kind: Any) -> list[Any]:
    return list(dict.items(container)) if kind is dict else list(kind.__iter__(container))


def _refill(container: Any, kind: Any, items: list[Any]) -> None:
    """Restore the items if they differ, without the wrappers' own methods, which record each change."""
    now = _items(container, kind)
    if [*map(_identity, now)] != [*map(_identity, items)]:
        kind.clear(container)
        (kind.update if kind in (dict, set) else kind.extend)(container, items)


def _identity(item: Any) -> Any:
    return tuple(map(id, item)) if isinstance(item, tuple) else id(item)
