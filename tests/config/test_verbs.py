"""`stallguard config` and the options that are made from the settings."""

from __future__ import annotations

import json

import click
from click.testing import CliRunner

from stallguard.cli import _options
from stallguard.cli.config import command
from stallguard.config.table import KEYS, all_keys


def said(*words: str) -> str:
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_show_tells_the_origin_of_a_value(here):
    (here / "stallguard.toml").write_text("detector.cap = '90s'\n")

    lines = said("show").splitlines()

    assert [line.split() for line in lines if line.startswith("detector.cap")] == [
        ["detector.cap", "1m30s", f"{here}/stallguard.toml:1"]
    ]
    assert len(lines) == len(KEYS) + 1


def test_show_json_has_every_setting(here):
    settings = json.loads(said("show", "--json"))["settings"]

    assert set(settings) == set(KEYS)
    assert settings["stop.grace"] == {"value": 10.0, "shown": "10s", "origin": "default", "default": 10.0}


def test_show_all_lists_the_tuning_table_too(here):
    assert len(said("show", "--all").splitlines()) == len(all_keys())


def test_path_says_which_files_are_read(here):
    assert "not there" in said("path")
    (here / "stallguard.toml").write_text("")
    assert said("path").splitlines()[1] == str(here / "stallguard.toml")


def test_schema_is_json(here):
    assert json.loads(said("schema"))["title"] == "stallguard settings"


@click.command()
@_options.settings()
def demo(**parameters):
    click.echo(json.dumps(_options.given(parameters)))


def test_options_become_flags_by_path():
    words = ["--grace", "20s", "--no-probe", "--let-sleep", "--set", "detector.cap=90s"]

    flags = json.loads(CliRunner().invoke(demo, words, catch_exceptions=False).output)

    assert {path: raw for path, raw in flags.items() if raw is not None} == {
        "stop.grace": "20s", "run.probe": False, "run.let_sleep": True, "detector.cap": "90s",
    }  # fmt: skip


def test_help_shows_unit_and_default():
    text = " ".join(CliRunner().invoke(demo, ["--help-all"]).output.split())
    assert "--grace DURATION Time between SIGTERM and SIGKILL, for a last checkpoint. [10s]" in text
