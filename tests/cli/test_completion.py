"""Completion in a real shell, and the code for the others."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from stallguard.cli.completion import answer
from stallguard.cli.verbs import OLD_FORMS, TOP, cli
from stallguard.storage import run_files

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_code_that_asks_us(shell):
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version, and there is none")
    result = CliRunner().invoke(cli, ["completion", shell], catch_exceptions=False)
    assert "_STALLGUARD_COMPLETE" in result.output


def test_another_shell_is_refused():
    assert CliRunner().invoke(cli, ["completion", "tcsh"]).exit_code == 2


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A place with two runs that are over, one that lives, a job, and a script."""
    runs = tmp_path / "home" / "runs"
    here = msgspec.json.decode(msgspec.json.encode(run_files.identity(os.getpid())))
    for name, words in (
        ("20260101-100000Z-night", ["train.py", "--epochs", "200"]),
        ("20260102-100000Z-night", ["train.py", "--epochs", "300"]),
        ("20260103-100000Z-cnn", ["cnn.py"]),
    ):
        lives = name.endswith("cnn")
        supervisor = here if lives else {"pid": 1, "started": 0.0, "boot": "another"}
        asked = {"schema": 2, "run": name, "command": words, "argv": words, "cwd": "/",
                 "started": "2026-01-01T10:00:00Z", "supervisor": supervisor}  # fmt: skip
        (runs / name).mkdir(parents=True)
        (runs / name / "run.json").write_text(json.dumps(asked))
    for place, file in (
        (".config/systemd/user", "stallguard-{}.service"),
        ("Library/LaunchAgents", "com.stallguard.{}.plist"),
    ):
        (tmp_path / place).mkdir(parents=True)
        for job in ("nightly", "weekly"):
            (tmp_path / place / file.format(job)).write_text("")
    (tmp_path / "train.py").write_text("")
    return tmp_path


def environment(home: Path, **more: str) -> dict[str, str]:
    program = home / "bin" / "stallguard"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stallguard "$@"\n')
        program.chmod(0o755)
    return {
        "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(home),
        "STALLGUARD_HOME": str(home / "home"), **more,
    }  # fmt: skip


def completed(home: Path, shell: str, *words: str) -> Result:
    """Ask as the shell does, with its variables; the last of `words` is the one that is being typed."""
    line = " ".join(("stallguard", *words))
    at = words[-1] if shell == "fish" else str(len(words))
    env = environment(home, _STALLGUARD_COMPLETE=f"{shell}_complete", COMP_WORDS=line, COMP_CWORD=at)
    with contextlib.chdir(home), patch.dict(os.environ, env, clear=True):
        return CliRunner().invoke(Answer())


class Answer(click.Command):
    """What `main` does when a shell asks, for click's runner: an interpreter for each question takes 0.2 s."""

    def __init__(self) -> None:
        super().__init__("stallguard")

    def main(self, *_words: Any, **_more: Any) -> Any:
        sys.exit(answer(cli, "stallguard"))


def offered(home: Path, shell: str, *words: str) -> dict[str, str]:
    """Return what a shell would offer, each with its description."""
    lines = completed(home, shell, *words).stdout.splitlines()
    if shell == "zsh":
        return {value: text for _, value, text in zip(*[iter(lines)] * 3, strict=True)}
    pairs = (line.partition(",")[2].partition("\t") for line in lines)
    return {value: text for value, _, text in pairs}


RUNS = ["20260103-100000Z-cnn", "20260102-100000Z-night", "20260101-100000Z-night"]
OFFERED = [
    (("report", ""), RUNS),
    (("status", "20260102"), RUNS[1:2]),
    (("logs", "night"), RUNS[1:]),
    (("debug", "bundle", "2026"), RUNS),
    (("debug", "replay", "2026"), RUNS),
    (("run", "--resume", ""), ["last", "no", *RUNS]),
    (("stop", ""), RUNS[:1]),
    (("restart", ""), RUNS[:1]),
    (("debug", "mute", "--run", ""), RUNS[:1]),
    (("debug", "dump", ""), RUNS[:1]),
    (("top", ""), RUNS[:1]),
    (("agent", "status", "--name", ""), ["nightly", "weekly"]),
    (("agent", "install", "--name", "n"), ["nightly"]),
    (("agent", "install", "--at", ""), ["login"]),
    (("agent", "install", "--env", "STALLGUARD_H"), ["STALLGUARD_HOME"]),
    (("run", "--on-stall", "h"), ["halve"]),
    (("agent", "install", "--scale-lr", ""), ["off", "linear", "sqrt"]),
    (("drill", "--kind", "s"), ["spin", "stopped"]),
    (("completion", ""), ["bash", "zsh", "fish"]),
    (("config", "get", "detector.pat"), ["detector.patience"]),
    (("config", "set", "policy.on_stall", "re"), ["restart"]),
    (("config", "set", "run.observe", ""), ["on", "off"]),
    (("config", "set", "notify.on", "stall,re"), ["stall,restart"]),
    (("run", "--set", "detector.pat"), ["detector.patience="]),
    (("run", "--set", "checkpoint.inexact=s"), ["checkpoint.inexact=stop"]),
    (("run", "--color=al"), ["--color=always"]),
    (("help", "agent", "un"), ["uninstall"]),
    (("help", "dri"), ["drill"]),
    (("bundle", "20260102"), RUNS[1:2]),
    (("tune", "f"), ["find-batch"]),
    (("fleet", "sw"), ["sweep"]),
    (("debug", "replay", "--set", "keep.ru"), ["keep.runs="]),
]


@pytest.mark.parametrize(("words", "expected"), OFFERED, ids=" ".join)
def test_what_can_stand_there_is_offered(home, words, expected):
    assert list(offered(home, "zsh", *words)) == expected
    assert list(offered(home, "fish", *words)) == expected


def test_bash_is_given_what_stands_behind_an_equals_sign_which_is_a_word_of_its_own_there(home):
    assert list(offered(home, "bash", "run", "--set", "policy.on_stall", "=", "re")) == ["restart"]
    assert list(offered(home, "bash", "run", "--set", "policy.on_stall", "=")) == [
        "auto", "restart", "halve", "cpu", "stop", "notify",
    ]  # fmt: skip
    assert list(offered(home, "bash", "run", "--color", "=", "al")) == ["always"]
    assert list(offered(home, "bash", "run", "--color", "=", "always", "--obs")) == ["--observe"]
    assert list(offered(home, "bash", "config", "set", "policy.causes", "device-wait", "=", "re")) == ["restart"]


def test_descriptions_are_whole_and_runs_are_described_by_their_command(home):
    assert offered(home, "zsh", "agent", "sto")["stop"] == (
        "End a job's training, with a checkpoint if one can be made; it stays installed and starts again at its time."
    )
    for words in ((), ("agent",), ("config",), ("tune", "learned")):
        for name, text in offered(home, "zsh", *words, "").items():
            assert not text.endswith("..."), name
            assert len(text) > 5, name
    assert offered(home, "fish", "report", "20260102") == {RUNS[1]: "train.py --epochs 300"}


def test_the_words_of_a_command_are_files_and_none_of_our_options(home):
    for words in (("run", "train.py", "--col"), ("run", "--", "train.py", "--col"), ("run", "train.py", "--color", "")):
        done = completed(home, "bash", *words)
        assert [line.partition(",")[0] for line in done.stdout.splitlines()] == ["file"], words


@pytest.mark.parametrize(
    "words",
    [("nonsense", ""), ("run", "--set", "no.such="), ("config", "set", "no.such", ""), ("help", "no", "x")],
    ids=" ".join,
)
def test_an_error_is_not_printed_into_the_line_that_is_typed(home, words):
    done = completed(home, "bash", *words)

    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_runs_that_cannot_be_read_are_no_error(home):
    (home / "home" / "runs" / RUNS[0] / "run.json").write_bytes(b"\xff[[[")
    shutil.rmtree(home / "home" / "runs" / RUNS[1])
    done = completed(home, "fish", "report", "")

    assert done.stdout.splitlines() == [f"plain,{RUNS[0]}", f"plain,{RUNS[2]}\ttrain.py --epochs 200"]
    assert done.stderr == ""


HEAVY = {"numpy", "rich", "jinja2", "structlog", "stallguard.core.fold", "stallguard.supervisor.session"}


# Completes the options of each verb in a fork of an interpreter that has imported no verb, and prints what it imported.
COMPLETE_EACH = """
import json, os, sys
from stallguard.cli import completion, main, verbs
for verb in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        os.environ["COMP_WORDS"] = f"stallguard {verb} --"
        try:
            main([])
        except SystemExit as end:
            print(json.dumps([verb, end.code, sorted(sys.modules)]), file=sys.stderr, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.mark.costly
def test_the_help_does_not_import_what_only_the_command_needs(home):
    """0.05 to 0.17 s of a processor, of which the interpreter and click take 0.05; what is heavy would double it."""
    env = environment(home, _STALLGUARD_COMPLETE="bash_complete", COMP_CWORD="2")
    verbs = sorted({*TOP, *OLD_FORMS})
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE_EACH, *verbs], env=env, cwd=home, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    found = [json.loads(line) for line in done.stderr.splitlines()]

    assert [(verb, code) for verb, code, _ in found] == [(verb, 0) for verb in verbs]
    assert all("click" in loaded for _, _, loaded in found)
    assert {verb: HEAVY & set(loaded) for verb, _, loaded in found} == {verb: set() for verb in verbs}


def test_all_verbs_are_offered_without_importing_one(home):
    env = environment(home, _STALLGUARD_COMPLETE="bash_complete", COMP_WORDS="stallguard ", COMP_CWORD="1")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "stallguard"], env=env, cwd=home, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip

    assert {f"plain,{verb}" for verb in TOP} <= set(done.stdout.splitlines())
    assert not {f"plain,{old}" for old in OLD_FORMS} & set(done.stdout.splitlines())
    assert "stallguard.cli.run" not in done.stderr


@pytest.mark.costly
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (("ag",), "agent"),
        (("agent", "inst"), "install"),
        (("run", "--patie"), "--patience"),
        (("agent", "install", "--stop-"), "--stop-at"),
        (("run", "tra"), "train.py"),
        (("report", "20260101"), "20260101-100000Z-night"),
        (("run", "--set", "policy.on_stall", "=", "hal"), "halve"),
        (("agent", "start", "--name", "ni"), "nightly"),
    ],
)
def test_bash_completes(home, line, offered):
    words = " ".join(f'"{word}"' for word in ("stallguard", *line))
    # compopt complains outside of a real completion.
    script = (
        'eval "$(stallguard completion bash)"\n'
        f"COMP_WORDS=({words}); COMP_CWORD={len(line)}\n"
        "$(complete -p stallguard | sed 's/.* -F \\([^ ]*\\) .*/\\1/') stallguard 2>/dev/null\n"
        'if [ "${#COMPREPLY[@]}" = 0 ]; then compgen -f -- "${COMP_WORDS[COMP_CWORD]}"; fi\n'
        "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment(home), cwd=home, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert offered in done.stdout.split(), done
