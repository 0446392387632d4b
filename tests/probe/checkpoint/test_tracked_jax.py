"""What of JAX's arrays and trees comes back from a checkpoint of `stallguard.track`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

CHILD = Path(__file__).parent / "children" / "tracked_jax.py"


def test_each_part_of_the_state_comes_back(other_python: Callable[[str], str], tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CHILD.parents[4])}
    done = subprocess.run(
        [other_python("jax"), str(CHILD)], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, one in held.items() if not one] == []
    assert len(held) > 20
