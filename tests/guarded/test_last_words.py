"""What fails at the very end of a run is told as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_last_notification_that_fails_is_told_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('done')")
    command = [sys.executable, "-m", "stallguard", "run", "--set", "notify.desktop=false", "--set",
               "notify.command=exit 3", "train.py"]  # fmt: skip
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "home")}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)

    words = "notifications by the command do not go out: it ended with exit code 3"
    journal = next((tmp_path / "home").glob("runs/2*/journal.jsonl"))
    assert words in ended.stderr
    assert words in journal.read_text()
