"""`stallguard config` shows the settings with their origins, and changes their files."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from click.testing import CliRunner

from stallguard.cli.config import command
from stallguard.config.table import KEYS, all_keys
from tests import command_line

ROOT = Path(__file__).parents[2]


def say(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STALLGUARD_HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    how = command_line.process if "run" in words else command_line.stallguard
    return how(*words, env=env, cwd=home)


def test_settings_are_written_read_and_shown(tmp_path):
    (tmp_path / "stallguard.toml").write_text("# mine\n[policy]\nbackoff = '1s'  # first\n\n[stop]\ngrace = '5s'\n")

    for name, value in (("policy.backoff", "3s"), ("policy.min_batch", "8"), ("output.quiet", "yes")):
        assert say(tmp_path, "config", "set", name, value).returncode == 0
    refused = say(tmp_path, "config", "set", "policy.backoff", "soon")

    assert refused.returncode == 2
    names = ("policy.backoff", "policy.min_batch", "output.quiet", "stop.grace")
    values = [say(tmp_path, "config", "get", name).stdout.strip() for name in names]
    assert values == ["3s", "8", "on", "5s"]
    assert (tmp_path / "stallguard.toml").read_text().startswith("# mine\n")


def test_a_file_of_settings_is_begun_once(tmp_path):
    assert say(tmp_path, "config", "init").returncode == 0
    assert say(tmp_path, "config", "show").returncode == 0, "it is valid"
    assert say(tmp_path, "config", "init").returncode == 2


def said(*words: str) -> str:
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_show_tells_the_origin_of_a_value(project):
    (project / "stallguard.toml").write_text("detector.cap = '90s'\n")

    lines = said("show").splitlines()

    assert [line.split() for line in lines if line.startswith("detector.cap")] == [
        ["detector.cap", "1m30s", f"{project}/stallguard.toml:1"]
    ]
    assert len(lines) == len(KEYS) + 1


def test_show_json_has_every_setting(project):
    settings = json.loads(said("show", "--json"))["settings"]

    assert set(settings) == set(KEYS)
    assert settings["stop.grace"] == {"value": 10.0, "shown": "10s", "origin": "default", "default": 10.0}


def test_show_all_lists_the_tuning_table_too(project):
    assert len(said("show", "--all").splitlines()) == len(all_keys())


def test_path_says_which_files_are_read(project):
    assert "not there" in said("path")
    (project / "stallguard.toml").write_text("")
    assert said("path").splitlines()[1] == str(project / "stallguard.toml")


def test_schema_is_json(project):
    assert json.loads(said("schema"))["title"] == "stallguard settings"
