"""What other packages add through entry points."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from stallguard import plugins

POINTS = "[stallguard.tests]\ngood = string:ascii_lowercase\nbad = no_such_module:Thing\n"


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path that adds two plug-ins, of which one cannot be loaded."""
    package = tmp_path / "extra-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: extra\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("added")
def test_a_plug_in_that_fails_is_reported_and_the_others_are_loaded() -> None:
    troubles: dict[str, Exception] = {}
    assert plugins.load("stallguard.tests", troubles.__setitem__) == {"good": "abcdefghijklmnopqrstuvwxyz"}
    assert isinstance(troubles["bad"], ModuleNotFoundError)


@pytest.mark.usefixtures("added")
def test_plug_ins_are_listed_without_being_loaded() -> None:
    assert plugins.installed("stallguard.tests") == [
        ("bad", "no_such_module:Thing", "extra"),
        ("good", "string:ascii_lowercase", "extra"),
    ]


def test_a_group_that_no_package_names_needs_no_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)  # an import of it would fail
    assert plugins.load("stallguard.tests", print) == {}


def test_an_archive_on_the_path_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "extra.zip", "w") as archive:
        archive.writestr("extra-1.0.dist-info/METADATA", "Name: extra\nVersion: 1.0\n")
        archive.writestr("extra-1.0.dist-info/entry_points.txt", POINTS)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "extra.zip"), *sys.path])
    assert "good" in plugins.load("stallguard.tests", lambda *_words: None)
