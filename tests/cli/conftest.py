"""A home, and in it runs that seem to live."""

from __future__ import annotations

import pytest

from tests.cli.living import Life


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def life(home):
    made = Life(home, "one")
    yield made
    made.close()


@pytest.fixture
def other(home):
    made = Life(home, "two")
    yield made
    made.close()


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project directory in an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"
