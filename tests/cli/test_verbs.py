"""The command line as a whole: its verbs, its errors, its options before the verb, and what it imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stallguard.cli import main
from stallguard.cli.verbs import OLD_FORMS, SECTIONS, TOP, VerbGroup, cli
from stallguard.config.table import KEYS
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

    assert (
        (first.returncode, first.stdout)
        == (again.returncode, again.stdout)
        == (wanted.returncode, wanted.stdout)
    )
    lines = first.stderr.splitlines()
    told = [line for line in lines if "the old form still works" in line]
    assert (
        [line for line in lines if line not in told]
        == again.stderr.splitlines()
        == wanted.stderr.splitlines()
    )
    assert len(told) == (old != ("help",))
    assert all(f"'stallguard {' '.join(new[:2])}" in line for line in told)


def test_an_old_form_says_nothing_with_quiet_and_says_it_again_after_a_day(here, tmp_path):
    assert here("-q", "ps").stderr == ""
    assert "'stallguard ls --live'" in here("ps").stderr
    (mark,) = (tmp_path / "old-forms").iterdir()
    os.utime(mark, (0, 0))
    assert "'stallguard ls --live'" in here("ps").stderr


def test_the_help_of_run_shows_what_is_needed_often_and_help_all_the_rest(here):
    few, all_of_them = (here("run", option).stdout for option in ("--help", "--help-all"))

    assert "--on-stall" in few
    assert "--checkpoint-cost" not in few
    assert "--help-all" in few
    assert "--checkpoint-cost" in all_of_them
    flags = [key.flag for key in KEYS.values() if key.flag]
    assert all(flag in all_of_them for flag in flags)


def test_help_shows_whole_summaries_in_groups():
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=60).output

    assert [line[:-1] for line in shown.splitlines() if line[:-1] in SECTIONS] == list(SECTIONS)
    assert all(verb.summary in " ".join(shown.split()) for verb in TOP.values())


@pytest.mark.parametrize("words", [("agent", "install", "--help"), ("agent", "install", "-h")])
def test_help_of_a_verb_is_asked_for_in_two_ways(tmp_path, words):
    # In a process of its own: click keeps the names of a command's help option from the first call, which in the
    # process of the tests can be one of the command alone.
    shown = command_line.process(
        *words, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, cwd=tmp_path
    )
    assert shown.returncode == 0
    assert "Usage: stallguard agent install" in shown.stdout


@pytest.mark.parametrize(
    ("words", "code", "first", "then"),
    [
        (("kill",), 2, "there is no verb 'kill'", "did you mean stop?"),
        (("ls", "--bad"), 2, "no such option '--bad'", "stallguard ls --help"),
        (("debug", "prune", "--runs", "x"), 2, "(option --runs)", "whole number"),
        (("agent", "install", "--at", "23:00"), 2, "a job needs a COMMAND", "stallguard agent install"),
        (("agent", "uninstall"), 3, "there is no job agent", "stallguard agent list"),
        (("run", "nb.ipynb"), 126, "nb.ipynb is a notebook", "jupyter nbconvert"),
        (("config", "get", "policy.bakoff"), 2, "there is no setting policy.bakoff", "policy.backoff"),
        (("nothing",), 2, "there is no verb 'nothing'", "stallguard --help"),
        (("find-bach",), 2, "there is no verb 'find-bach'", "did you mean tune find-batch?"),
    ],
)
def test_every_error_has_one_form_and_says_what_to_do(tmp_path, words, code, first, then):
    (tmp_path / "nb.ipynb").write_text("{}")

    answer = say(tmp_path, *words)

    lines = answer.stderr.splitlines()
    assert (answer.returncode, answer.stdout) == (code, "")
    assert lines[0].startswith("stallguard: ")
    assert first in lines[0]
    assert then in " ".join(lines[1:])
    assert all(line.startswith("  ") for line in lines[1:])


@pytest.mark.waits
def test_options_before_the_verb_reach_a_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(EMPTY)
    run = ("run", "--python", sys.executable, "--name", "night", str(script))

    quiet, plain, verbose = (say(tmp_path, *before, *run).stderr for before in (("-q",), (), ("-v",)))

    assert quiet == ""
    assert "the interpreter is" not in plain
    assert re.search(r"-night(-\d)?\)", plain), "a second one in the same second has a number"
    assert "the interpreter is" in verbose
    assert say(tmp_path, "run", "-q", "--python", sys.executable, str(script)).stderr == ""


def test_a_dry_run_shows_what_would_be_started_and_starts_nothing(tmp_path):
    (tmp_path / "train.py").write_text(EMPTY)

    shown = say(
        tmp_path,
        "run",
        "--python",
        sys.executable,
        "--dry-run",
        "--patience",
        "2",
        "train.py",
        "--epochs",
        "3",
    )

    assert shown.returncode == 0, shown.stderr
    assert f"{sys.executable} train.py --epochs 3" in shown.stdout
    assert "detector.patience = 2" in shown.stdout
    assert not (tmp_path / "runs").exists()


def test_settings_are_written_read_and_shown(tmp_path):
    (tmp_path / "stallguard.toml").write_text(
        "# mine\n[policy]\nbackoff = '1s'  # first\n\n[stop]\ngrace = '5s'\n"
    )

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


def test_version_has_a_short_form(tmp_path):
    assert say(tmp_path, "-V").stdout == say(tmp_path, "--version").stdout != ""


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (("--help",), ("msgspec", "psutil", "rich", "numpy", "jinja2", "stallguard.config")),
        (("ls", "--bad"), ("numpy", "jinja2", "rich", "stallguard.supervisor.session")),
        (("run", "--bad"), ("numpy", "jinja2", "rich", "psutil", "stallguard.supervisor.session")),
        (("ls",), ("numpy", "jinja2", "rich", "stallguard.config", "stallguard.supervisor.session")),
        (("ls", "--live"), ("numpy", "jinja2", "rich", "stallguard.config", "stallguard.supervisor.session")),
        (("status",), ("numpy", "jinja2", "rich", "stallguard.config", "stallguard.supervisor.session")),
    ],
)
def test_a_verb_imports_only_what_it_needs(tmp_path, words, heavy):
    code = (
        "import sys\nfrom stallguard.cli import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        f"sys.stderr.write('LOADED ' + ' '.join(name for name in {heavy!r} if name in sys.modules))"
    )
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr.rpartition("LOADED")[2].strip() == ""
