"""A call of `fit` by the script, in any version of Keras."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class FitCall(NamedTuple):
    """One call of `fit` by the script.  `start(epoch)` trains from that epoch on, `skip()` trains nothing."""

    model: Any
    callbacks: Any
    validation: Any
    first: int
    epochs: int
    site: str
    obstacle: str  # why no checkpoints of it are made, "" if they are
    start: Callable[[int], Any]
    skip: Callable[[], Any]
    arguments: dict[str, Any]  # of the call, with defaults
    checked: Callable[[], None]  # its data are those of its saved state, which is not given up any more


class GivenGenerator:
    """The arguments of a call of fit that can be repeated: a generator gives again what was drawn from it.

    Until `forget` is called; from then on it only passes on.
    """

    def __init__(self) -> None:
        self._source: Any = None
        self._drawn: list[Any] = []
        self._keeping = True

    def arguments(self, named: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with a generator that begins where the script's own was in the first call."""
        if self._source is None and isinstance(named.get("x"), types.GeneratorType):
            self._source = named["x"]
        return named if self._source is None else {**named, "x": self._batches()}

    def _batches(self) -> Iterator[Any]:
        yield from tuple(self._drawn)
        for batch in self._source:
            if self._keeping:
                self._drawn.append(batch)
            yield batch

    @property
    def was_drawn_from(self) -> bool:
        """Return whether an earlier call had the generator."""
        return self._source is not None

    def forget(self) -> None:
        """Keep nothing more of what is drawn."""
        self._keeping = False
        self._drawn = []
