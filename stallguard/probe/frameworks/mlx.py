"""MLX of Apple: a script counts its steps by stallguard.beat(); nothing of it is wrapped."""

from __future__ import annotations

from ..libraries import Library

LIBRARY = Library("mlx", trains=True, array_waits=("eval", "item", "synchronize", "tolist"), distributions=("mlx",))
