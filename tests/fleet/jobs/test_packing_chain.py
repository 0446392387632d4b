"""A project from one machine to the end of its training on another: packed, unpacked, its environment made, run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.fleet.jobs import packing, preparing, unpacking

pytestmark = pytest.mark.live
uv = pytest.importorskip("uv")
ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests/fleet/scripts/count.py"


def test_a_packed_project_trains_where_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    project, out = tmp_path / "project", tmp_path / "out"
    (project / "jobs").mkdir(parents=True)
    out.mkdir()
    shutil.copy(SCRIPT, project / "jobs")
    (project / "pyproject.toml").write_text('[project]\nname = "job"\nversion = "0"\nrequires-python = ">=3.11"\n')
    env = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache"), "UV_OFFLINE": "1", "UV_PYTHON": sys.executable}
    subprocess.run([uv.find_uv_bin(), "lock", "-q"], cwd=project, env=env, check=True)
    code, archive, *_ = packing.pack(("count.py", "5", "0"), project / "jobs", out, {**env, "HOME": str(tmp_path)})
    shutil.rmtree(project)
    folder = unpacking.unpack(archive, code.digest, "job")
    python = preparing.interpreter(folder, code.folder, "", env)
    done = subprocess.run(
        [sys.executable, "-m", "stallguard", "run", "--python", python, "--set", f"store.project={folder}",
         "--", "count.py", "5", "0"],
        cwd=unpacking.working_folder(folder, code.folder), env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "begins at 0" in done.stdout
    assert "digest " in done.stdout
