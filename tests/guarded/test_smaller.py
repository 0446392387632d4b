"""A training that needs too much memory is trained in slices, in its process or a new one, and comes to the same."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stallguard.core.events import ProbeNote

from .runs import stallguard

CHILDREN = Path(__file__).parents[1] / "probe" / "microbatch" / "children"


def trained(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "trained").read_text().splitlines()[-1])
    return found


@pytest.mark.parametrize("late", [False, True], ids=["inside", "restart"])  # inside an update: a restart
@pytest.mark.parametrize(
    ("script", "case"),
    [("trainer_cases.py", "numbers,rows=44,accumulation=2"), ("lightning_cases.py", "numbers,rows=44,accumulation=2")],
)
def test_an_out_of_memory_error_leads_to_slices_and_the_same_weights(
    other_python: Callable[[str], str], tmp_path: Path, script: str, case: str, late: bool
) -> None:
    python, plain, guarded = other_python("hf"), tmp_path / "plain", tmp_path / "guarded"
    for folder in (plain, guarded):
        folder.mkdir()
    quiet = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    subprocess.run(
        [python, CHILDREN / script, case], cwd=plain, env={**os.environ, **quiet}, check=True, capture_output=True
    )
    words = (
        "run",
        "--python",
        python,
        "--set",
        "policy.backoff=0s",
        str(CHILDREN / script),
        case + ",limit=4" + late * ",from=3",
    )
    run = stallguard(tmp_path / "home", *words, env=quiet, cwd=guarded)

    assert run.code == 0, run.err
    assert [action.get("factor", 1) for action in run.actions("attempt.start_requested")] == ([1, 2] if late else [1])
    if late:
        notes = [event.text for event in run.events if isinstance(event, ProbeNote) and event.kind == "memory"]
        assert notes[0].startswith("out of memory in step 2: not trained again inside the process, because gradients")
    else:
        assert "out of memory in step 1: trained in 2 slices inside the process, caches emptied" in run.err
        assert "computed in 2 slices" in run.announced("training.changed")[-1]["text"]
        assert not run.announced("stall.judged")
    assert "as if whole" in run.err
    one, other = trained(plain), trained(guarded)
    assert other["steps"] == one["steps"]
    assert max(abs(a - b) for a, b in zip(one["weights"], other["weights"], strict=True)) <= 4e-6


def test_a_language_model_goes_on_after_the_batch_that_was_too_large_in_slices(
    other_python: Callable[[str], str], tmp_path: Path
) -> None:
    python, plain, guarded = other_python("mlx"), tmp_path / "plain", tmp_path / "guarded"
    for folder in (plain, guarded):
        folder.mkdir()
    script, case = str(CHILDREN / "mlx_lm_cases.py"), "accumulation=2,seed=3"
    # Of the fifth batch on the rows are longer.  Without its compiler of C++ MLX begins sooner.
    environment = {"TMPDIR": str(tmp_path), "MLX_DISABLE_COMPILE": "1"}
    subprocess.run(
        [python, script, case], cwd=plain, env={**os.environ, **environment}, check=True, capture_output=True
    )
    words = ("run", "--python", python, "--set", "policy.backoff=0s", "--set", "checkpoint.every=0s", "--set",
             "checkpoint.cost=1", script, case + ",limit=200")  # fmt: skip
    run = stallguard(tmp_path / "home", *words, env=environment, cwd=guarded)

    assert run.code == 0, run.err
    assert [action.get("factor", 1) for action in run.actions("attempt.start_requested")] == [1, 2]
    assert "mlx-lm's trainer goes on after iteration 4" in run.err
    assert "as if whole" in run.err
    one, other = trained(plain), trained(guarded)
    assert (other["steps"], other["begun"]) == (one["steps"], one["begun"])
    assert max(abs(a - b) for a, b in zip(one["weights"], other["weights"], strict=True)) <= 4e-6
    assert other["reports"][-1][1:] == one["reports"][-1][1:]
    assert other["reports"][-2] == pytest.approx(one["reports"][-2], rel=4e-6)
