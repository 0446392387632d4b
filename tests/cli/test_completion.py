"""Completion in a real shell, and the code for the others."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stallguard.cli import cli

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_code_that_asks_us(shell):
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("click asks bash for its version, and there is none")
    result = CliRunner().invoke(cli, ["completion", shell], catch_exceptions=False)
    assert "_STALLGUARD_COMPLETE" in result.output


def test_another_shell_is_refused():
    assert CliRunner().invoke(cli, ["completion", "tcsh"]).exit_code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (("ag",), "agent"),
        (("agent", "inst"), "install"),
        (("run", "--patie"), "--patience"),
        (("agent", "install", "--stop-"), "--stop-at"),
        (("run", "tra"), "train.py"),
    ],
)
def test_bash_completes(tmp_path, line, offered):
    program = tmp_path / "stallguard"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stallguard "$@"\n')
    program.chmod(0o755)
    (tmp_path / "train.py").write_text("")
    words = " ".join(f'"{word}"' for word in ("stallguard", *line))
    script = (
        'eval "$(stallguard completion bash)"\n'
        f"COMP_WORDS=({words}); COMP_CWORD={len(line)}\n"
        "_stallguard_completion stallguard 2>/dev/null\n"  # compopt complains outside of a real completion
        'if [ "${#COMPREPLY[@]}" = 0 ]; then compgen -f -- "${COMP_WORDS[COMP_CWORD]}"; fi\n'
        "printf '%s\\n' \"${COMPREPLY[@]}\"\n"
    )
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert offered in done.stdout.split(), done
