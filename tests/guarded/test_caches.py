"""A library's cache that fills the memory is emptied while the training goes on, and no number changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .runs import SCRIPTS, stallguard

SCRIPT = str(SCRIPTS / "mlx_cache.py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS has no limit on the memory of a process")


def test_the_cache_of_mlx_is_given_back_if_memory_is_short(other_python: Callable[[str], str], tmp_path: Path) -> None:
    python, environment = other_python("mlx"), {"TMPDIR": str(tmp_path)}
    plain = subprocess.run([python, SCRIPT, "0"], env=environment, capture_output=True, text=True, check=True)
    run = stallguard(tmp_path, "run", "--python", python, SCRIPT, "0.3", env=environment, report=True)

    assert run.code == 0, run.err
    (held, left, digest), (_, never, alone) = run.out.decode().split(), plain.stdout.split()
    assert digest == alone
    assert int(left) < 10_000_000
    assert int(never) >= int(held) > 500_000_000
    [said] = run.announced("memory.given_back")
    assert said["text"] in run.err
    assert "MLX held 0.60 GB for 0.00 GB in use" in said["text"]
    assert "0.60 GB came back" in said["text"]
    assert run.run is not None
    assert "600 MB of a library&#39;s cache were given back" in (run.run / "report.html").read_text()


def test_the_setting_leaves_the_cache_alone(other_python: Callable[[str], str], tmp_path: Path) -> None:
    words = ("--set", "policy.empty_caches=false", "--python", other_python("mlx"), SCRIPT, "0.3")
    run = stallguard(tmp_path, "run", *words, env={"TMPDIR": str(tmp_path)})

    assert run.code == 0, run.err
    assert int(run.out.split()[1]) > 500_000_000
    assert "caches" not in [one["command"] for one in run.actions("probe.asked")]
