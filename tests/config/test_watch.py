"""Each change of a settings file is noticed, and nothing else."""

from __future__ import annotations

import logging
import threading

import pytest

from stallguard.config.watch import FilesWatch


@pytest.fixture
def project(tmp_path):
    (tmp_path / "stallguard.toml").write_text("stop.grace = '10s'\n")
    return tmp_path


def test_what_the_library_logs_is_not_printed(monkeypatch, capsys):
    """Without a handler, `logging` prints errors on standard error: between the lines of the training."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    logging.getLogger("watchdog.observers.inotify").error("stopped between two events")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("how", ["write", "replace", "remove", "make"])
def test_every_way_to_change_a_file_is_noticed(project, how):
    file, changed = project / "stallguard.toml", threading.Event()
    if how == "make":
        file.unlink()
    draft = project / ".draft"
    draft.write_text("stop.grace = 1\n")
    watch = FilesWatch([file], changed.set)
    try:
        {
            "write": lambda: file.write_text("stop.grace = 1\n"),
            "replace": lambda: draft.replace(file),
            "remove": file.unlink,
            "make": lambda: file.write_text(""),
        }[how]()
        assert changed.wait(10)
    finally:
        watch.close()


def test_reading_it_and_changing_a_neighbour_is_not_noticed(project):
    seen = threading.Event()
    watch = FilesWatch([project / "stallguard.toml", project / "gone" / "config.toml"], seen.set)
    try:
        (project / "stallguard.toml").read_text()
        (project / "model.keras").write_text("")
        assert not seen.wait(0.5)
    finally:
        watch.close()
