"""The command line starts quickly: a verb imports what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import command_line

ROOT = Path(__file__).parents[2]


def say(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "STALLGUARD_HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    how = command_line.process if "run" in words else command_line.stallguard
    return how(*words, env=env, cwd=home)


def test_version_has_a_short_form(tmp_path):
    assert say(tmp_path, "-V").stdout == say(tmp_path, "--version").stdout != ""


@pytest.mark.costly
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
