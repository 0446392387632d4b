"""MLX of Apple: a script counts its steps by stallguard.beat(); nothing of it is wrapped."""

from __future__ import annotations

import sys

from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _random_key() -> Any:
    """Return the state of the global generator as two numbers of 32 bits, None if mlx.core is not imported."""
    core = sys.modules.get("mlx.core")
    if core is None:
        return None
    key = core.random.state[0]
    return tuple(int(one) for one in key.tolist())


def _set_random_key(state: Any) -> None:
    """Set the state that `_random_key` returned."""
    high, low = state
    sys.modules["mlx.core"].random.seed((high << 32) | low)


LIBRARY = Library(
    "mlx",
    trains=True,
    array_waits=("eval", "item", "synchronize", "tolist"),
    distributions=("mlx",),
    generators={"mlx": (_random_key, _set_random_key)},
)
