"""What fails at the very end of a run is told as well, and what is taken away from under it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from .runs import RUN


def test_a_last_notification_that_fails_is_reported_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('done')")
    command = [*RUN, "--set", "notify.desktop=false", "--set",
               "notify.command=exit 3", "train.py"]  # fmt: skip
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "home")}
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)

    words = "notifications by the command are not sent: it ended with exit code 3"
    journal = next((tmp_path / "home").glob("runs/2*/journal.jsonl"))
    assert words in ended.stderr
    assert words in journal.read_text()
    for verb, shown in {"status": "the command, ", "logs": words}.items():
        again = subprocess.run(
            [sys.executable, "-m", "stallguard", verb], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert shown in again.stdout
        assert "it ended with exit code 3" in again.stdout


def test_a_run_whose_directory_and_sockets_are_removed_says_so_and_trains_to_its_end(tmp_path: Path) -> None:
    script = "import os, time\nwhile not os.path.exists('stop'): time.sleep(0.05)\nprint('done')"
    (tmp_path / "train.py").write_text(script)
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "home")}
    with (tmp_path / "err").open("wb") as err:
        run = subprocess.Popen(
            [*RUN, "train.py"], cwd=tmp_path, env=env, stdout=subprocess.PIPE,
            stderr=err,
        )  # fmt: skip
    try:
        said(tmp_path / "err", "guarding")
        until = time.monotonic() + 60
        while not any(map(is_watched, (tmp_path / "home").glob("runs/2*/journal.jsonl"))):
            assert time.monotonic() < until
            time.sleep(0.05)
        for _ in range(5):  # the run writes meanwhile, so a directory may not be empty yet
            shutil.rmtree(tmp_path / "home", ignore_errors=True)
        said(tmp_path / "err", "was removed: from now on nothing of the run is kept")
        (tmp_path / "stop").touch()
        assert run.communicate(timeout=60)[0] == b"done\n"
    finally:
        run.kill()
        run.communicate()
    assert run.returncode == 0


def is_watched(journal: Path) -> bool:
    """Tell whether the sensors of a run are at work."""
    return '"sensor.sampled"' in journal.read_text()


def said(path: Path, words: str) -> None:
    until = time.monotonic() + 90
    while words not in path.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    assert words in path.read_text()
