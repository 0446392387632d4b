"""The command line as a whole: its verbs and old forms, and its help."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stallguard.cli import main
from stallguard.cli.verbs import OLD_FORMS, SECTIONS, TOP, VerbGroup, cli
from tests import command_line

ROOT = Path(__file__).parents[2]
EMPTY = "import sys; sys.exit(0)"


def say(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STALLGUARD_HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    how = command_line.process if "run" in words else command_line.stallguard
    return how(*words, env=env, cwd=home)


def every_verb(
    group: click.Group = cli, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each verb with its words, those of groups too."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert isinstance(command, click.Command), name
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from every_verb(command, (*before, name))


def test_each_verb_of_the_tables_is_there_and_has_one_name():
    found = dict(every_verb())
    assert {words[0] for words in found} == set(TOP)
    assert {"tune", "debug", "fleet"} == {
        words[0] for words, command in found.items() if isinstance(command, VerbGroup) and command.verbs
    }
    assert all(words[-1] == command.name for words, command in found.items())


def test_each_old_form_leads_to_a_verb_and_none_is_shown():
    found = dict(every_verb())
    assert all(tuple(word for word in new if word[0] != "-") in found for new in OLD_FORMS.values())
    assert not {*OLD_FORMS, "help"} & {words[0] for words in found}


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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("ps", "--json"), ("ls", "--live", "--json")),
        (("prune", "-n"), ("debug", "prune", "-n")),
        (("learned", "show"), ("tune", "learned", "show")),
        (("prune", "--runs", "x"), ("debug", "prune", "--runs", "x")),
        (("submit",), ("fleet", "submit")),
        (("mute",), ("debug", "mute")),
        (("help", "mute"), ("debug", "mute", "--help")),
        (("help",), ("--help",)),
    ],
)
def test_an_old_form_does_what_the_new_one_does_and_says_it_once_a_day(here, old, new):
    first, again, wanted = here(*old), here(*old), here(*new)

    assert (first.returncode, first.stdout) == (again.returncode, again.stdout) == (wanted.returncode, wanted.stdout)
    lines = first.stderr.splitlines()
    told = [line for line in lines if "the old form still works" in line]
    assert [line for line in lines if line not in told] == again.stderr.splitlines() == wanted.stderr.splitlines()
    assert len(told) == (old != ("help",))
    assert all(f"'stallguard {' '.join(new[:2])}" in line for line in told)


def test_an_old_form_says_nothing_with_quiet_and_says_it_again_after_a_day(here, tmp_path):
    assert here("-q", "ps").stderr == ""
    assert "'stallguard ls --live'" in here("ps").stderr
    (mark,) = (tmp_path / "old-forms").iterdir()
    os.utime(mark, (0, 0))
    assert "'stallguard ls --live'" in here("ps").stderr


def test_help_shows_whole_summaries_in_groups():
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=60).output

    assert [line[:-1] for line in shown.splitlines() if line[:-1] in SECTIONS] == list(SECTIONS)
    assert all(verb.summary in " ".join(shown.split()) for verb in TOP.values())


@pytest.mark.parametrize("words", [("agent", "install", "--help"), ("agent", "install", "-h")])
def test_help_of_a_verb_is_asked_for_in_two_ways(tmp_path, words):
    # In a process of its own: click keeps the names of a command's help option from the first call, which in the
    # process of the tests can be one of the command alone.
    shown = command_line.process(*words, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, cwd=tmp_path)
    assert shown.returncode == 0
    assert "Usage: stallguard agent install" in shown.stdout
