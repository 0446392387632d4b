"""What MLX compiles on a processor without Metal: g++ takes a minute for the kernels of a small language model.

It keeps them in TMPDIR, which many tests have of their own.
"""

from __future__ import annotations

import os
from pathlib import Path

NAME = "mlx-kernels"


def share(folder: Path) -> str:
    """Have MLX find there what earlier tests of this process compiled; return `folder`, for TMPDIR.

    Of this process alone, which has a TMPDIR (conftest.py): MLX does not expect that another one writes the same file.
    """
    place, link = os.environ.get("TMPDIR"), folder / "mlx"
    if place is not None and not link.exists():
        kernels = Path(place) / NAME
        kernels.mkdir(exist_ok=True)
        link.symlink_to(kernels)
    return str(folder)
