"""Another program named stallguard is noticed; ours is known however it was installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.doctor.on_path import foreign

ROOT = Path(__file__).parents[2]
LONG = "#!/bin/sh\n'''exec' \"{}\" \"$0\" \"$@\"\n' '''\nimport sys\n"


def program(place: Path, text: str) -> str:
    place.mkdir(parents=True, exist_ok=True)
    path = place / "stallguard"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("head", ["#!{}\nimport sys\n", LONG], ids=["short", "long"])
def test_an_environment_with_our_distribution_is_ours_and_one_with_another_is_not(tmp_path, head):
    python = tmp_path / "with blank" / "bin/python"
    script = program(python.parent, head.format(python))
    packages = tmp_path / "with blank" / "lib/python3.12/site-packages"
    (packages / "stallguard-4.0.dist-info").mkdir(parents=True)
    assert foreign(script) == script
    (packages / "stallguard_train-0.1.0.dist-info").mkdir()
    assert foreign(script) == ""


def test_a_link_to_ours_is_ours_as_uv_and_pipx_make_it(tmp_path):
    ours = program(tmp_path / "env/bin", f"#!{sys.executable}\nimport sys\n")
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin/stallguard"
    link.symlink_to(ours)
    assert foreign(str(link)) == ""


@pytest.mark.parametrize("text", ["\x7fELF", "#!/bin/sh\necho hello\n", "#!/usr/bin/env node\n", ""])
def test_what_is_no_script_of_a_python_with_us_is_foreign(tmp_path, text):
    script = program(tmp_path, text)
    assert foreign(script) == script


def test_none_on_path_is_no_finding():
    assert foreign(None) == ""


def test_doctor_warns_of_the_other_program(tmp_path):
    script = program(tmp_path / "bin", "#!/bin/sh\nexit 1\n")
    env = os.environ | {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "STALLGUARD_HOME": str(tmp_path / "home"),
    }
    command = [sys.executable, "-m", "stallguard", "doctor", "--json", "--python", sys.executable]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=ROOT)
    found = [one for one in json.loads(done.stdout)["findings"] if one["name"] == "command"]
    assert [(one["severity"], script in one["what"]) for one in found] == [("warn", True)]
