"""Loops that hand over their objects to `stallguard.track` end after kills as without them, to the bit."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .runs import SCRIPTS, stallguard

ROOT = str(Path(__file__).parents[2])
OPTIONS = ("--checkpoint-every", "0s", "--set", "checkpoint.cost=1", "--set", "policy.backoff=0s",
           "--set", "policy.no_progress_limit=9")  # fmt: skip


@pytest.fixture
def short() -> Iterator[str]:
    """Yield a directory whose path is short: torch's workers pass tensors by sockets in TMPDIR.

    A socket's path has at most 107 characters: beyond that torch drops the batch, and the loop waits without end.
    """
    with tempfile.TemporaryDirectory(prefix="t-") as path:
        yield path


@pytest.mark.parametrize(
    ("library", "kills", "words"),
    [
        ("torch", "step:7,validation:0", ()),
        ("torch", "save:9,step:9", ("workers=2", "epoch=1")),
        ("torch", "step:4,validation:1", ("scaled=1", "stop=9")),
        ("mlx", "step:7,validation:0,save:5", ("compiled=1",)),
        ("mlx", "step:20,save:3", ()),
    ],
)
def test_a_killed_loop_ends_as_the_undisturbed_one(
    other_python: Callable[[str], str], tmp_path: Path, short: str, library: str, kills: str, words: tuple[str, ...]
) -> None:
    python, script = other_python(library), str(SCRIPTS / f"tracked_{library}.py")
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH", ""))))}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "compiled")  # torch makes it, unused
    environment["TMPDIR"] = short  # worker processes leave directories there when their parent is killed
    for name in ("plain", "killed"):
        (tmp_path / name).mkdir()
    whole = subprocess.run(
        [python, script, str(tmp_path / "plain"), "none:0", *words],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    run = stallguard(tmp_path, "run", *OPTIONS, "--", python, script, str(tmp_path / "killed"), kills, *words,
                     env=environment)  # fmt: skip
    assert run.code == 0, run.err
    assert len(list((tmp_path / "killed").iterdir())) == 1 + len(kills.split(","))
    assert run.out.decode().splitlines()[-1] == whole.stdout.splitlines()[-1]
    assert "goes on" in run.err
    assert "another order" not in run.err
