"""Every error has one form: what happened, why, and what to do next."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests import command_line

ROOT = Path(__file__).parents[2]


def say(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STALLGUARD_HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    how = command_line.process if "run" in words else command_line.stallguard
    return how(*words, env=env, cwd=home)


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
