"""`stallguard mcp` begins and ends as a client expects, and says what it lacks."""

from __future__ import annotations

import os
import sys

import pytest
from click.testing import CliRunner

from stallguard.cli import mcp
from stallguard.errors import CANNOT_RUN, StallguardError
from tests import command_line


def test_it_ends_when_its_input_ends_and_prints_nothing_of_its_own(tmp_path):
    pytest.importorskip("mcp")
    done = command_line.process("mcp", env={**os.environ, "STALLGUARD_HOME": str(tmp_path)}, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "")  # the library can write warnings on standard error


def test_without_the_extra_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp", None)

    answer = CliRunner().invoke(mcp.command, [])

    assert isinstance(answer.exception, StallguardError)
    assert answer.exception.code == CANNOT_RUN
    assert "uv tool install --force '.[mcp]'" in answer.exception.cure
