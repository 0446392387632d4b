"""MLX: the state of its global generator, which checkpoints keep."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

SCRIPT = """
import mlx.core as mx
from stallguard.probe.checkpoint import random_state
mx.random.seed(7)
before = random_state.capture()
drawn = mx.random.normal((4,))
random_state.restore(before)
print(mx.array_equal(mx.random.normal((4,)), drawn).item(), random_state.capture()["mlx"] == before["mlx"])
"""


def test_the_global_generator_draws_again_what_it_drew(other_python: Callable[[str], str]) -> None:
    found = subprocess.run(
        [other_python("mlx"), "-c", SCRIPT], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    assert found.stdout == "True False\n", found.stderr
