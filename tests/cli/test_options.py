"""The options of settings: what the help shows, and which flags they become."""

from __future__ import annotations

import gc
import json
import subprocess
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from stallguard.cli import _options, main
from stallguard.config.table import KEYS


@pytest.fixture
def here(tmp_path, monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command line in this process, in a home of its own."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        with pytest.raises(SystemExit) as end:
            main(list(words))
        gc.enable()  # `main` disables it for a run
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(words, end.value.code, printed.out, printed.err)

    return run


def test_the_help_of_run_shows_what_is_needed_often_and_help_all_the_rest(here):
    few, all_of_them = (here("run", option).stdout for option in ("--help", "--help-all"))

    assert "--on-stall" in few
    assert "--checkpoint-cost" not in few
    assert "--help-all" in few
    assert "--checkpoint-cost" in all_of_them
    flags = [key.flag for key in KEYS.values() if key.flag]
    assert all(flag in all_of_them for flag in flags)


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
