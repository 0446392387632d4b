"""MLX of Apple: a script counts its steps by stallguard.beat(); nothing of it is wrapped."""

from __future__ import annotations

from ..libraries import Library

LIBRARY = Library("mlx", computes=True, distributions=("mlx",))
