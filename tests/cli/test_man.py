"""The manual page: whole, and without a fault that groff could find."""

from __future__ import annotations

import re
import shutil
import subprocess

import click
import pytest
from click.testing import CliRunner

from stallguard.cli import _manual
from stallguard.cli._verbs import cli
from stallguard.config.table import EVERYDAY
from stallguard.core.text import wrapped


@pytest.fixture(scope="module")
def page() -> str:
    result = CliRunner().invoke(cli, ["man", "--roff"], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.fixture(scope="module")
def plain(page) -> str:
    return page.replace(r"\-", "-").replace(r"\&", "").replace(r"\e", "\\")


def test_every_verb_and_setting_is_in_it(plain):
    verbs = [name for name, _ in _manual.verbs(cli)]
    assert len(verbs) > 15
    assert all(f"\n.SS {name}\n" in plain for name in verbs)
    assert all(f"\n.B {key.path}\n" in plain for key in EVERYDAY)


def test_examples_keep_their_lines(plain):
    assert "\n.nf\nExamples:\n  stallguard run train.py --epochs 200\n" in plain


def test_the_options_of_run_stand_once(page):
    assert len(re.findall(r"^\.B \\-\\-grace", page, re.MULTILINE)) == 1


def test_text_cannot_pass_for_a_request():
    assert _manual._plain(".TH evil") == r"\&.TH evil"
    assert _manual._plain(r"a\b-c") == r"a\eb\-c"


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff on this machine")
def test_groff_finds_no_fault(page):
    command = ["groff", "-man", "-Tutf8", "-ww", "-z"]
    done = subprocess.run(command, input=page, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


def test_hidden_verbs_stay_hidden(page):
    assert "agent work" not in page


def test_every_verb_has_a_first_sentence_and_those_with_options_an_example_or_few():
    for name, command in _manual.verbs(cli):
        assert isinstance(command, click.Command)
        assert command.get_short_help_str(200).endswith("."), name


def test_what_is_piped_is_text_for_people(page):
    text = _manual.readable(page, 60)

    assert CliRunner().invoke(cli, ["man"]).output.startswith("NAME\n")
    assert not re.search(r"^\.[A-Z]|\\", text, re.MULTILINE)
    assert "--on-stall" in text
    assert all(len(line) <= 60 or line.startswith("    ") for line in text.splitlines())


def test_a_message_is_broken_between_words_and_paths_stay_whole():
    path = "/a/very/long/path/that/somebody/may/want/to/copy/from/the/terminal/report.html"
    text = wrapped(f"stallguard: the whole story: stallguard report 2026, or {path}", 40)

    assert path in text.splitlines()[-1]
    assert [len(line) <= 40 for line in text.splitlines()[:-1]] == [True] * (len(text.splitlines()) - 1)
    assert wrapped("one line", None) == "one line"
