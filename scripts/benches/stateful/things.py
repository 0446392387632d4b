"""A stateful thing: what a script makes, changes at each batch, and looks at."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import NamedTuple

CATALOGS = (
    "python_values", "python_objects", "python_handles", "of_numpy", "of_libraries", "of_keras",
    "of_tensorflow", "of_torch", "of_jax", "of_mlx",
)  # fmt: skip


class Thing(NamedTuple):
    """One entry of the catalog, as text of Python.

    `make`: an expression.  `change`: statements on `thing` and the number `n` of the batch; one that assigns `thing`
    replaces it.  `look`: an expression of `thing`, a plain value that depends on every change.
    """

    name: str
    make: str
    change: str
    look: str
    setup: str = ""  # what stands at the head of the script: imports, classes
    needs: str = ""  # modules that must be installed
    # Its values differ at each start: what it held when the training was killed is compared, and it feeds nothing.
    is_random: bool = False

    @property
    def rebinds(self) -> bool:
        """Whether a change makes another object."""
        return any(part.strip().startswith("thing = ") for part in self.change.replace(";", "\n").splitlines())

    def is_of_keras(self) -> bool:
        """Return whether it is an object of Keras, which loops of other libraries have none of."""
        return any("keras" in text for text in (self.make, self.setup))

    def modules(self) -> list[str]:
        return self.needs.split()


@functools.cache
def catalog() -> dict[str, Thing]:
    """Return all things by name.  Raises ValueError if two have one name, or a name has a mark of SPEC."""
    found: dict[str, Thing] = {}
    for module in CATALOGS:
        for thing in import_module(f"stateful.{module}").THINGS:
            if thing.name in found or set(thing.name) & set("/+@ "):
                raise ValueError(f"the name {thing.name!r} cannot be used")
            found[thing.name] = thing
    return found
