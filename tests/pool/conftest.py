"""A fleet to try: its file, its store, and the command line in its home."""

from __future__ import annotations

import datetime as dt

import pytest
from click.testing import CliRunner

from stallguard.errors import StallguardError
from stallguard.fleet.machines import founding
from tests.pool.lab import lab, mounted  # noqa: F401 - fixtures


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home with an empty store beside it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "store").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "STALLGUARD_FLEET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def found(home, tmp_path):
    """A function that makes a fleet with this scheduler; it returns the content of its file."""
    pytest.importorskip("cryptography")

    def make(scheduler="127.0.0.1:1", *, store="store", file=None, now=None, days=30, name=""):
        (tmp_path / store).mkdir(exist_ok=True)
        place = file or home / ".config/stallguard/fleet.toml"
        when = now or dt.datetime.now(dt.UTC)
        url, by = f"file://{tmp_path / store}", founding.beside(place)
        return founding.found(url, scheduler, days, place, by, when, force=True, name=name)

    return make


@pytest.fixture
def fleet(home):
    """A function that runs `stallguard fleet`; it returns what is printed, or the lines of the error."""
    from stallguard.cli.fleet import command

    def run(*words, code=0):
        result = CliRunner().invoke(command, words)
        if isinstance(result.exception, StallguardError):
            assert result.exception.code == code, result.exception.lines()
            return "\n".join(result.exception.lines())
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run
