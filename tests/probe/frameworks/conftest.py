"""A script below stallguard that uses W&B or MLflow: the real libraries, offline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guarded.runs import Guarded, stallguard

SCRIPT = Path(__file__).parents[1] / "children" / "tracked.py"


@pytest.fixture
def tracked(tmp_path, other_python):
    """Return a function that runs the script below stallguard until it ends."""
    python = other_python("trackers")
    env = {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true", "TMPDIR": str(tmp_path / "tmp"),  # a crash leaves files of wandb there
    }  # fmt: skip
    (tmp_path / "tmp").mkdir()

    def run(what: str, *options: str, **more: str) -> Guarded:
        words = ("run", "--python", python, "--set", "policy.backoff=0s", *options, str(SCRIPT), what)
        return stallguard(tmp_path / "home", *words, env=env | more, cwd=tmp_path)

    return run
