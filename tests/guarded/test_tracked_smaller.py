"""A tracked loop that has no memory for its batch goes on with parts of it, and ends as the undisturbed one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .runs import SCRIPTS, stallguard

ROOT = str(Path(__file__).parents[2])
SCRIPT = str(SCRIPTS / "tracked_smaller.py")
OPTIONS = ("--checkpoint-every", "0s", "--set", "checkpoint.cost=1", "--set", "policy.backoff=0s")


@pytest.mark.parametrize(("library", "most"), [("torch", 4), ("accelerate", 4), ("mlx", 2)])
def test_a_batch_that_is_too_large_is_trained_in_parts(
    other_python: Callable[[str], str], tmp_path: Path, library: str, most: int
) -> None:
    python = other_python("hf" if library == "accelerate" else library)
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH", ""))))}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "compiled")  # torch makes it, unused
    plain = subprocess.run([python, SCRIPT, library, "99"], env={**os.environ, **environment}, capture_output=True,
                           text=True, check=True, timeout=300)  # fmt: skip
    run = stallguard(tmp_path, "run", *OPTIONS, "--", python, SCRIPT, library, str(most), env=environment)
    assert run.code == 0, run.err
    factors = [action.get("factor", 1) for action in run.actions("attempt.start_requested")]
    assert factors == [1, 2, 4][: len(factors)]
    assert factors[-1] == 8 // most
    assert f"is trained in {factors[-1]} parts and one update" in run.err
    assert "goes on" in run.err
    steps, counted, *found = json.loads(run.out.decode().splitlines()[-1])
    whole_steps, whole_counted, *whole = json.loads(plain.stdout.splitlines()[-1])
    assert (steps, counted) == (whole_steps, whole_counted)
    assert max(abs(one - other) for one, other in zip(found, whole, strict=True)) <= 4e-6
