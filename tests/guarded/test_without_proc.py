"""Where the system shows no process, nothing begins and nothing is removed: one error says why."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.storage import paths, run_files

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a mount namespace of our own needs Linux, root and unshare",
)


@pytest.mark.parametrize("verb", ["run --name one x.py", "ls", "status", "debug prune --runs 1", "ls --live", "doctor"])
def test_a_verb_that_needs_the_state_of_processes_says_what_is_missing(tmp_path: Path, verb: str) -> None:
    home, script = tmp_path / "home", tmp_path / "x.py"
    script.write_text("open('trained', 'w')")
    runs = [paths.new_run("alive", stamp, home / "runs") for stamp in ("20260101-000000", "20260102-000000")]
    for run in runs:  # both are guarded by this process, and the older one is beyond what is kept
        asked = run_files.RunRequest(1, run.id, [], [], "/", "", run_files.identity(os.getpid()))
        run_files.write(run.asked, asked)
    command = f"umount -l /proc && exec {sys.executable} -m stallguard {verb}"

    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", command],
        cwd=tmp_path, env={**os.environ, "STALLGUARD_HOME": str(home)}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip

    if "umount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no /proc of our own can be unmounted here: {done.stderr}")
    assert done.returncode == 126, done.stderr
    assert done.stderr.startswith("stallguard: the state of processes cannot be read\n  /proc is not mounted")
    assert len(done.stderr.splitlines()) == 3, done.stderr
    assert not (tmp_path / "trained").exists()
    assert paths.list_runs(home / "runs") == runs
