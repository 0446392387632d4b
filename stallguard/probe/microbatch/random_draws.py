"""Replaces random numbers while rows are compared by the same numbers in every row, and records which layers drew.

A layer that draws (dropout, noise, random augmentation) draws different numbers for slices than for the whole batch, so
gradients differ although the computation is equivalent.  For the comparison a draw is replaced by numbers that depend
only on the last dimension of its shape: each row of a slice gets the same as each row of the whole batch, about as many
units are dropped as usual, and the training's own code runs.  Draws that cannot be replaced like this are recorded.

The modules of the frameworks (slices_tf, _jax, _torch) replace functions only for the thread that compares: the
script's other threads can draw data meanwhile.
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
    """The layers that drew; those in `real` got real random numbers, which differ from slice to slice."""

    def __init__(self) -> None:
        self.layers: dict[str, str] = {}  # name: class
        self.real: set[str] = set()

    def note(self, real: bool = False) -> None:
        """Record the layer whose code runs now: the innermost on the stack."""
        name, kind = "the training step", ""  # without one
        frame: Any = sys._getframe(1)
        while frame is not None:
            owner: Any = frame.f_locals.get("self")
            if any(base.__name__ == "Layer" for base in type(owner).__mro__) and hasattr(owner, "name"):
                name, kind = str(owner.name), type(owner).__name__
                break
            frame = frame.f_back
        self.layers[name] = kind
        if real:
            self.real.add(name)


def field(length: int) -> list[float]:
    """Return `length` numbers between 0 and 1, spread evenly, the same for each call."""
    return [LEAST + (MOST - LEAST) * ((0.381966 + GOLDEN * place) % 1.0) for place in range(length)]


def row(shape: list[int]) -> list[float]:
    """Return the numbers of the last dimension of a draw, which all others repeat; one for a single dimension."""
    return field(shape[-1] if len(shape) > 1 else 1)


@contextmanager
def replaced(functions: list[tuple[Any, str, Callable[[Function], Function]]]) -> Iterator[None]:
    """Replace `module.name` by make(original) in this thread during the body; skip names that do not exist."""
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
