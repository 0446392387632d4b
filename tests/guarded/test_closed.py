"""Standard descriptors that are closed when `run` is started: the training sees what it would see without us."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

SCRIPT = """
import os, sys
seen = []
for descriptor in range(3):
    try:
        seen.append(os.fstat(descriptor) is not None)
    except OSError:
        seen.append(False)
with open(sys.argv[1], "w") as file:
    print(seen, [getattr(sys, name) is None for name in ("stdin", "stdout", "stderr")], file=file)
print("a line")
sys.exit(7)
"""


@pytest.mark.parametrize("closed", [tuple(c) for c in product((0, 1), repeat=3) if any(c)], ids=str)
def test_closed_descriptors_are_closed_for_the_training_too(tmp_path: Path, closed: tuple[int, ...]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = os.environ | {"STALLGUARD_HOME": str(tmp_path / "home")}
    shut = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in range(3) if closed[number])
    codes, seen = [], []
    for words in ([], ["-m", "stallguard", "run", sys.executable]):
        announced = tmp_path / f"told{len(seen)}"
        line = subprocess.list2cmdline([sys.executable, *words, str(script), str(announced)])
        done = subprocess.run(["/bin/sh", "-c", f"{line} {shut}"], env=env, capture_output=True, check=False)
        codes.append(done.returncode)
        seen.append(announced.read_text())
    assert seen[0] == seen[1]
    assert codes == [7, 7]
