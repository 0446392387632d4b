"""An interpreter describes itself; if it fails or hangs, the doctor goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.doctor import interrogate
from stallguard.doctor.interrogate import INSIDE, ask, environment
from stallguard.launch.command import InterpreterChoice


def script(tmp_path, body):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return InterpreterChoice(str(path), "a test")


def test_this_interpreter_tells_its_version_and_packages():
    announced = environment(InterpreterChoice(sys.executable, "a test"), deep=False)
    assert announced.installed.version == sys.version_info[:3]
    assert announced.installed.packages["numpy"]
    assert announced.trouble == ""


def test_words_of_the_environment_around_the_answer_do_no_harm(tmp_path):
    answer = json.dumps({"executable": "/x", "version": [3, 12, 1], "packages": {"torch": "2.13.0"}})
    announced = environment(script(tmp_path, f"echo welcome; echo 'stallguard-doctor:{answer}'; echo bye"), deep=False)
    assert (announced.installed.version, announced.framework) == ((3, 12, 1), "torch")


@pytest.mark.parametrize(
    ("body", "trouble"),
    [
        ("exit 3", "exit code 3"),
        ("echo 'libcrypto is missing' >&2; exit 1", "libcrypto is missing (exit code 1)"),
        ("kill -SEGV $$", "killed by signal 11"),
        ("echo 'stallguard-doctor:{broken'", "cannot be read"),
        ("""echo 'stallguard-doctor:{"version": 3}'""", "cannot be read"),
    ],
)
def test_an_interpreter_that_fails_is_reported_with_its_own_last_words(tmp_path, body, trouble):
    announced = environment(script(tmp_path, body), deep=True)
    assert announced.installed is None
    assert announced.deep is None
    assert trouble in announced.trouble


def test_what_is_no_program_is_reported():
    assert "cannot be started" in environment(InterpreterChoice("/dev/null", "a test"), deep=False).trouble


def test_an_interpreter_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    began = time.monotonic()
    heartbeat = ask([script(tmp_path, "sleep 60 & sleep 60").path], 0.3)
    assert heartbeat.trouble == "no answer within 0.3 s"
    assert time.monotonic() - began < interrogate.LAST_WORDS  # both sleepers held the pipes open


def test_the_scripts_run_under_python_3_9():
    # pyenv's shims fail where the version is not chosen; the shell's own search is what a user has.
    command = "python3.9 -c 'import sys; print(sys.executable)'"
    found = subprocess.run(
        ["sh", "-c", command], check=False, capture_output=True, text=True, env=os.environ | {"PYENV_VERSION": "3.9.18"}
    )
    if found.returncode:
        pytest.skip("there is no python3.9 here")
    announced = environment(InterpreterChoice(found.stdout.strip(), "a test"), deep=False)
    assert announced.installed.version[:2] == (3, 9)


def test_the_mark_is_one_and_the_same():
    for path in INSIDE.glob("*.py"):
        assert f'MARK = "{interrogate.MARK.decode()}"' in Path(path).read_text()
