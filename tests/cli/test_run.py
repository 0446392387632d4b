"""`stallguard run` shows what it would start, and options before the verb reach it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import command_line

ROOT = Path(__file__).parents[2]
EMPTY = "import sys; sys.exit(0)"


def say(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STALLGUARD_HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    how = command_line.process if "run" in words else command_line.stallguard
    return how(*words, env=env, cwd=home)


@pytest.mark.waits
def test_options_before_the_verb_reach_a_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(EMPTY)
    run = ("run", "--python", sys.executable, "--name", "night", str(script))

    quiet, plain, verbose = (say(tmp_path, *before, *run).stderr for before in (("-q",), (), ("-v",)))

    assert quiet == ""
    assert "the interpreter is" not in plain
    assert re.search(r"-night(-\d)?\)", plain), "a second one in the same second has a number"
    assert "the interpreter is" in verbose
    assert say(tmp_path, "run", "-q", "--python", sys.executable, str(script)).stderr == ""


def test_a_dry_run_shows_what_would_be_started_and_starts_nothing(tmp_path):
    (tmp_path / "train.py").write_text(EMPTY)

    shown = say(
        tmp_path, "run", "--python", sys.executable, "--dry-run", "--patience", "2", "train.py", "--epochs", "3"
    )

    assert shown.returncode == 0, shown.stderr
    assert f"{sys.executable} train.py --epochs 3" in shown.stdout
    assert "detector.patience = 2" in shown.stdout
    assert not (tmp_path / "runs").exists()
