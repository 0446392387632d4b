"""`stallguard doctor` on the command line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from stallguard.cli.rehearsal import lines, summary
from stallguard.doctor.facts import FAIL, NOTE, OK, WARN, CheckResult
from tests import command_line

ROOT = Path(__file__).parents[2]


@pytest.fixture
def doctor(tmp_path):
    def run(*words, cwd=None, **variables):
        env = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
        env |= {"STALLGUARD_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)} | variables
        return command_line.stallguard("doctor", *words, env=env, cwd=cwd or Path.cwd())

    return run


@pytest.fixture
def bare(tmp_path):
    """A Python without any framework."""
    path = tmp_path / "python-bare"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_an_environment_without_a_framework_fails_with_exit_code_1_and_a_cure(doctor, bare):
    done = doctor("--python", bare)
    assert done.returncode == 1
    assert "no TensorFlow, PyTorch, JAX or MLX" in done.stdout
    assert "-> activate the training's environment first" in done.stdout


def test_json_is_one_object_with_findings_and_the_facts_behind_them(doctor, bare):
    done = doctor("--json", "--python", bare)
    announced = json.loads(done.stdout)
    assert (announced["schema"], announced["verdict"], done.returncode) == (1, "fail", 1)
    assert {"name", "severity", "what", "cure"} == set(announced["findings"][0])
    assert announced["facts"]["environment"]["installed"]["version"] == list(sys.version_info[:3])


def test_the_active_environment_is_looked_into(doctor):
    announced = json.loads(doctor("--json", VIRTUAL_ENV=sys.prefix).stdout)
    assert announced["facts"]["environment"]["why"] == f"the virtual environment {sys.prefix} is active"


def test_the_interpreter_of_the_settings_is_looked_into(doctor, bare, tmp_path):
    (tmp_path / "stallguard.toml").write_text(f'[run]\npython = "{bare}"\n')
    assert json.loads(doctor("--json", cwd=tmp_path).stdout)["facts"]["environment"]["path"] == bare


def test_an_interpreter_that_is_not_there_is_one_clear_error(doctor):
    done = doctor("--python", "/nowhere/python")
    assert (done.returncode, done.stdout) == (127, "")
    assert "no such interpreter: /nowhere/python" in done.stderr


def test_a_finding_without_a_cure_is_one_line():
    assert len(lines(CheckResult("gpu", OK, "Apple M4"))) == 1
    assert len(lines(CheckResult("power", FAIL, "running on battery", "plug it in"))) == 2


def test_a_name_of_another_program_cannot_steer_the_terminal():
    (line,) = lines(CheckResult("others", NOTE, "also running: \x1b]0;x\x07\udcff"))
    assert "\x1b]" not in line
    line.encode()


@pytest.mark.parametrize(
    ("severities", "words"),
    [
        ((OK, NOTE), "Ready for the night."),
        ((OK, WARN), "No finding would make a training fail; 1 warning."),
        ((OK, WARN, WARN), "No finding would make a training fail; 2 warnings."),
        ((FAIL, WARN), "1 of 2 findings would make a training fail."),
    ],
)
def test_the_last_line_says_whether_to_go_to_bed(severities, words):
    assert summary([CheckResult("x", severity, "y") for severity in severities]) == words
