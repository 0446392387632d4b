"""Arguments and directories that are not UTF-8: the training gets the bytes that were given, and verbs show them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from stallguard.core.events import Exited
from stallguard.storage.paths import list_runs
from stallguard.supervisor.detached_run import reopened
from tests.guarded.runs import Guarded

WORD, PLACE = b"d\xfc", b"n\xe4chte"
SCRIPT = b"""
import os, sys
sys.stdout.buffer.write(os.fsencode(sys.argv[1]) + b" " + os.path.basename(os.getcwdb()))
sys.exit(4)
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="APFS refuses names that are not UTF-8")
def test_they_reach_the_training_and_its_run_can_be_shown(tmp_path: Path) -> None:
    place = os.path.join(os.fsencode(tmp_path), PLACE)  # noqa: PTH118 - bytes
    os.mkdir(place)  # noqa: PTH102 - bytes
    (tmp_path / "script.py").write_bytes(SCRIPT)
    env = os.environ | {"STALLGUARD_HOME": str(tmp_path / "home")}
    us = [sys.executable, "-m", "stallguard"]
    run = [*us, "run", sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run([*map(os.fsencode, run), WORD], cwd=place, env=env, capture_output=True, check=False)
    assert done.returncode == 4, done.stderr.decode(errors="replace")
    assert done.stdout == WORD + b" " + PLACE

    [made] = list_runs(tmp_path / "home" / "runs")
    request = reopened(made)
    assert os.fsencode(request.words[-1]) == os.fsencode(request.command.argv[-1]) == WORD
    assert os.fsencode(request.cwd) == place
    guarded = Guarded(4, b"", "", made.path)
    assert [event.code for event in guarded.events if isinstance(event, Exited)] == [4]
    assert guarded.announced("run.started")
    for verb in (["ls", "--json"], ["report", "--json"]):
        shown = subprocess.run([*us, *verb], env=env, capture_output=True, check=False)
        assert shown.returncode == 0, shown.stderr
        assert msgspec.json.decode(shown.stdout)
