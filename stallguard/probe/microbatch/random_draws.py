"""Random numbers while rows are compared: the same in every row, and who drew them.

A layer that draws (dropout, noise, random augmentation) draws other numbers for slices than for the whole batch, so
gradients differ although the mathematics is the same.  For the comparison a draw is replaced by numbers that depend on
the last dimension of its shape alone: the first row of a slice gets what each row of the whole batch gets, about as
many units are dropped as ever, and the code that training runs is run.  Draws that cannot be replaced so are noted.

The frameworks' modules (draws_tf, draws_jax, draws_torch) replace their functions for the thread that compares only:
the script's own threads may draw data meanwhile.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator

    Function = Callable[..., Any]

GOLDEN = 0.6180339887498949  # its multiples are spread evenly over (0, 1)
LEAST, MOST = 0.02, 0.98  # so that no number is an extreme of a normal distribution


class Draws:
    """The layers that drew; those of them in `real` got real random numbers, which differ from slice to slice."""

    def __init__(self) -> None:
        self.layers: dict[str, str] = {}  # name: class
        self.real: set[str] = set()

    def note(self, real: bool = False) -> None:
        """Note the layer whose code runs now."""
        name, kind = _drawing()
        self.layers[name] = kind
        if real:
            self.real.add(name)


def field(length: int) -> list[float]:
    """Return `length` numbers between 0 and 1, spread evenly, the same each time."""
    return [LEAST + (MOST - LEAST) * ((0.381966 + GOLDEN * place) % 1.0) for place in range(length)]


def row(shape: list[int]) -> list[float]:
    """Return the numbers that are repeated over all dimensions of a draw but the last; one for a list of rows."""
    return field(shape[-1] if len(shape) > 1 else 1)


@contextmanager
def replaced(functions: list[tuple[Any, str, Callable[[Function], Function]]]) -> Iterator[None]:
    """Replace `module.name` by make(original) in this thread for the body; names that a version lacks are left."""
    thread, before = get_ident(), []
    for module, name, make in functions:
        original = getattr(module, name, None)
        if original is not None:
            before.append((module, name, original))
            setattr(module, name, _in_thread(thread, original, make(original)))
    try:
        yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)


def _in_thread(thread: int, original: Function, other: Function) -> Function:
    def draw(*args: Any, **named: Any) -> Any:
        return (other if get_ident() == thread else original)(*args, **named)

    return draw


def _drawing() -> tuple[str, str]:
    """Return name and class of the innermost layer on the stack; "the training step" where there is none."""
    frame = sys._getframe(2)
    while frame is not None:
        owner: Any = frame.f_locals.get("self")
        if any(kind.__name__ == "Layer" for kind in type(owner).__mro__) and hasattr(owner, "name"):
            return str(owner.name), type(owner).__name__
        frame = frame.f_back  # type: ignore[assignment]
    return "the training step", ""
