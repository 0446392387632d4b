"""A training that leaks is started again from a checkpoint before its memory runs out, and loses no batch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stallguard.core.diagnosis import causes

from .runs import SCRIPTS, guard, stallguard

# 6 MB a second, and 200 MB that the process can have: they are used up after 30 s of the 35 s that it takes.
SCRIPT = """
import pathlib, resource, time, stallguard
resource.setrlimit(resource.RLIMIT_DATA, (200_000_000,) * 2)
step, leaked = [0], []
def save(path): pathlib.Path(path).write_text(str(step[0]))
def load(path): step[0] = int(pathlib.Path(path).read_text())
stallguard.checkpoint(save, load)
while step[0] < 350:
    leaked.append(b"x" * 600_000)
    step[0] += 1
    print(step[0], flush=True)
    time.sleep(0.1)
    stallguard.beat()
"""


LIMITED = pytest.mark.skipif(sys.platform != "linux", reason="macOS has no limit on the memory of a process")


@LIMITED
def test_a_leak_is_told_and_saved_and_the_next_process_trains_the_rest(tmp_path: Path) -> None:
    script = tmp_path / "leaks.py"
    script.write_text(SCRIPT)
    done = guard(tmp_path / "home", "--checkpoint-every", "1h", str(script), cwd=tmp_path)

    assert done.code == 0, done.err
    assert [int(line) for line in done.out.split()] == list(range(1, 351)), "each step once"
    assert len(done.announced("memory.trend")) == len(done.announced("memory.checkpoint")) == 1
    decided = [one for one in done.actions("incident.diagnosed") if one.get("decision")]
    assert [one["findings"][0]["cause"] for one in decided] == [causes.MEMORY_RUNS_OUT]


# The reports mlx-examples#1076 and ultralytics#24065: the memory of the process grows with each step.
@LIMITED
@pytest.mark.parametrize("library", ["torch", "mlx"])
def test_a_tracked_loop_that_leaks_comes_to_the_same_as_one_that_does_not(
    tmp_path: Path, other_python: Callable[[str], str], library: str
) -> None:
    python, script = other_python(library), str(SCRIPTS / "tracked_leak.py")
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)}
    command, whole = [python, script, library, "0", "0"], {**os.environ, **environment}
    plain = subprocess.run(command, env=whole, capture_output=True, text=True, check=True)
    words = ("--checkpoint-every", "1h", "--python", python, script, library, "600000", "0.1")
    run = stallguard(tmp_path, "run", *words, env={"TMPDIR": str(tmp_path)})

    assert run.code == 0, run.err
    assert run.out.decode() == plain.stdout, "each step once, and the same weights"
    decided = [one for one in run.actions("incident.diagnosed") if one.get("decision")]
    assert [one["findings"][0]["cause"] for one in decided] == [causes.MEMORY_RUNS_OUT]
