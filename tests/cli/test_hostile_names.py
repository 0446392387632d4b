"""What a user, or a stranger, put into arguments and names steers no terminal; a home of others is one clear error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stallguard.cli import history, logs, ls, report, status, tune
from stallguard.cli.verbs import cli
from stallguard.core.actions import Announce
from stallguard.core.learned import BatchSizes
from stallguard.core.text import shell_words
from stallguard.storage import learned_store, paths, run_files
from stallguard.storage.journal import Journal
from stallguard.storage.journal import read as read_journal
from stallguard.supervisor.notices import Terminal, journal_line

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt"
STEERING = ("\x1b", "\x07", "\x9b", "\u202e")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.RunDir:
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    made = paths.new_run("train", "20260101-000000")
    command = ["train.py", ESCAPES, "two\nlines"]
    asked = run_files.RunRequest(1, made.id, command, command, "/", run_files.utc(), run_files.Identity(1, 0.0))
    run_files.keep_asked(made, asked)
    run_files.conclude(made, run_files.Outcome(1, 1, f"because {ESCAPES}", run_files.utc(), 1.0, 0, 0, 1, 0.0))
    journal = Journal(made.journal, print)
    journal.write(1.0, *journal_line(Announce("run.started", {"command": " ".join(command), "run": made.id})))
    journal.close()
    return made


@pytest.mark.parametrize("verb", [ls.command, status.command, history.morning, logs.command])
def test_arguments_reach_the_terminal_as_text(run: paths.RunDir, verb) -> None:
    shown = CliRunner().invoke(verb, []).output

    assert "train.py" in shown
    assert not [character for character in STEERING if character in shown]


def test_a_list_has_one_line_a_run(run: paths.RunDir) -> None:
    assert len(CliRunner().invoke(ls.command, []).output.splitlines()) == 1


@pytest.mark.parametrize(
    ("verb", "more"), [(status.command, []), (history.morning, []), (logs.command, []), (report.command, [])]
)
def test_the_command_is_one_line_wherever_it_is_shown(run: paths.RunDir, verb, more: list[str]) -> None:
    shown = CliRunner().invoke(verb, more).output.splitlines()

    assert [line for line in shown if "train.py" in line] != []
    assert not [line for line in shown if line.startswith("lines")]


def test_a_message_of_the_journal_is_one_visible_line_for_any_reader(run: paths.RunDir) -> None:
    [entry] = read_journal(run.journal)

    assert entry.line.message.isprintable()
    assert "two\u240alines" in entry.line.message


def test_an_error_that_names_a_file_is_as_many_lines_as_any_other() -> None:
    command = [sys.executable, "-m", "stallguard", "run", "no\nsuch\x1b[31m.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.stderr.startswith("stallguard: ")
    assert all(line.startswith(("stallguard: ", "  ")) for line in done.stderr.splitlines())
    assert all(line.isprintable() for line in done.stderr.splitlines())


def test_the_command_to_copy_is_one_line_that_a_shell_reads_as_it_was() -> None:
    words = ["printf", "%s|", "two\nlines", "it's \\ \t", ESCAPES, "\udce9.txt", "\U000e0001", "plain", "a b"]
    shown = shell_words(words)

    assert shown.isprintable()
    done = subprocess.run(["bash", "-c", shown], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}, timeout=60)
    assert os.fsdecode(done.stdout).split("|")[:-1] == words[2:]


def test_a_script_of_which_something_was_learned_is_text_on_one_line(run: paths.RunDir) -> None:
    key = learned_store.CommandKey(("train.py", ESCAPES, "two\nlines"), "/", "digest", "machine")
    learned_store.keep_sizes(key, BatchSizes(rows=8))
    [line] = CliRunner().invoke(tune.learned, ["show"]).output.splitlines()

    assert "train.py" in line
    assert not [character for character in STEERING if character in line]


def test_a_dry_run_shows_arguments_as_text(run: paths.RunDir) -> None:
    shown = CliRunner().invoke(cli, ["run", "--dry-run", "--", sys.executable, "-c", "pass", ESCAPES]).output

    assert "command" in shown
    assert not [character for character in STEERING if character in shown]


def test_what_is_reported_during_a_run_is_text(tmp_path: Path) -> None:
    with (tmp_path / "said").open("w+") as stream:
        terminal = Terminal(stream, quiet=False, color=False)
        terminal.say(f"guarding {ESCAPES}")
        terminal.close()
        stream.seek(0)
        said = stream.read()

    assert said.startswith("stallguard: guarding ")
    assert not [character for character in STEERING if character in said]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_the_runs_of_another_user_are_one_clear_error(run: paths.RunDir) -> None:
    run.path.parent.chmod(0o700)
    script = f"""
import sys
sys.path[:] = {sys.path!r}
import locale, stallguard.cli.verbs  # loaded before: the other user cannot read this interpreter everywhere
from stallguard.cli import ls
from stallguard.storage import paths
from stallguard.errors import StallguardError
import os
os.setuid(65534)
try:
    ls.command.main([], standalone_mode=False)
except StallguardError as error:
    print(error.code, *error.lines())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert ended.stdout.startswith("126 cannot read"), ended.stderr
    assert "STALLGUARD_HOME" in ended.stdout
