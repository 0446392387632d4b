"""Everything that comparing a few rows touches, put back as it was.

Variables of the framework, the process' random generators, gradients that torch keeps, and the attributes of layers
and models that are classes of the script's own: a counter, a list that grows.  Objects of Keras' own classes keep
nothing in their attributes from one step to the next.
"""

from __future__ import annotations

import warnings
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..checkpoint import random_state
from . import batch_structure

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT = (list, dict, set, deque)  # whose contents are put back too; not those of the frameworks' own lists


@contextmanager
def undone(model: Any) -> Iterator[None]:
    """Put generators and attributes back after the body; no warning leaves it: the training will give its own."""
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
    """The attributes of the model and its layers, as far as these are of the script's own classes."""

    def __init__(self, model: Any) -> None:
        self._before = [
            (owner, {name: (value, _contents(value)) for name, value in vars(owner).items()})
            for owner in own_objects(model)
        ]

    def restore(self) -> None:
        """Put back what is another object now, and the contents of lists, dicts, sets and deques."""
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
    """Return the model and those of its layers whose class the script, or a library on top of Keras, defines."""
    every = [model, *batch_structure.layers(model)]
    return [
        owner for owner in every if type(owner).__module__.partition(".")[0] not in batch_structure.FRAMEWORKS
    ]


def _contents(value: Any) -> list[tuple[Any, Any, list[Any]]]:
    """Return (container, its kind, a copy of its items) of what an attribute holds.

    The frameworks wrap lists and dicts that are attributes: Keras 3 in classes of its own, TensorFlow around them.
    """
    parts = [getattr(value, "__wrapped__", value)]
    if isinstance(value, list):
        parts.append(getattr(value, "_storage", None))
    return [(part, kind, _items(part, kind)) for part in parts for kind in KEPT if isinstance(part, kind)]


def _items(container: Any, kind: Any) -> list[Any]:
    return list(dict.items(container)) if kind is dict else list(kind.__iter__(container))


def _refill(container: Any, kind: Any, items: list[Any]) -> None:
    """Put the items back, unless they are there, past the wrappers' own methods: those record each change."""
    now = _items(container, kind)
    if [*map(_identity, now)] != [*map(_identity, items)]:
        kind.clear(container)
        (kind.update if kind in (dict, set) else kind.extend)(container, items)


def _identity(item: Any) -> Any:
    return tuple(map(id, item)) if isinstance(item, tuple) else id(item)
