"""A call of `fit` by the script, in any version of Keras."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple


class Call(NamedTuple):
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
