"""Checkpoints that cannot be written: said when it begins and when it ends, with what a kill would cost."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from stallguard.probe.checkpoint import generations
from stallguard.probe.checkpoint.manual import Manual
from stallguard.probe.checkpoint.schedule import CheckpointSchedule, SaveReport
from tests.probe.checkpoint.test_manual import Told

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def refused(kind: str, folder: Path, monkeypatch) -> None:
    """Make the writing of a checkpoint in `folder` fail as the system would."""
    if kind == "a full disk":
        monkeypatch.setattr(generations, "SPARE", 1 << 62)
    elif kind == "no inode":
        disk = os.statvfs(folder.parent)

        def full(path, *_more, **_named):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        monkeypatch.setattr(generations.os, "makedirs", full)
        monkeypatch.setattr(generations.os, "statvfs", lambda _path: disk)
    else:
        folder.parent.mkdir(exist_ok=True)
        folder.write_text("another program made a file of this name")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("a full disk", "must stay free for the script"),
        ("no inode", "No space left on device"),
        ("a file in its place", "exists"),
    ],
)
def test_the_reason_is_said_once_with_what_a_kill_costs_and_that_there_is_none(tmp_path, monkeypatch, kind, words):
    told, folder = Told(), tmp_path / "place" / "manual-1"
    folder.parent.mkdir()
    one = Manual(told, str(folder), CheckpointSchedule(0.0, 1.0, 0.0), lambda path: None, "state")
    refused(kind, folder, monkeypatch)
    for _ in range(3):
        one.save(time.monotonic())

    ((topic, text),) = told.notes
    assert topic == "unsaved"
    assert words in text
    assert "kept" not in text
    assert "a kill costs all that is trained from now on" in text
    assert "there is none" in text


def test_an_end_of_the_trouble_is_said_and_a_new_one_again(tmp_path):
    told = Told()
    report = SaveReport(told)
    (tmp_path / "fit-0001" / "g1").mkdir(parents=True)
    folder = str(tmp_path / "fit-0002")
    for error in (None, FULL, FULL, PermissionError(errno.EACCES, "Permission denied"), None, None, FULL):
        report.failed(error, folder) if error else report.saved(time.monotonic())

    assert [topic for topic, _ in told.notes] == ["unsaved", "unsaved", "saved", "unsaved"]
    assert "the checkpoint before" in told.notes[0][1]


def test_a_checkpoint_without_some_state_costs_its_whole_fit_and_earlier_fits_are_kept(tmp_path):
    told = Told()
    report = SaveReport(told)
    report._fit = time.monotonic() - 1200
    (tmp_path / "fit-0002" / "g1").mkdir(parents=True)
    report.saved(time.monotonic())
    report.lacks("callbacks[0].file (TextIOWrapper)", str(tmp_path / "fit-0002"))
    report.lacks("callbacks[0].file (TextIOWrapper)", str(tmp_path / "fit-0002"))

    ((topic, text),) = told.notes
    assert topic == "unsaved"
    assert "lacks the state of callbacks[0].file (TextIOWrapper)" in text
    assert text.endswith("all that was trained so far (20 min): there is none")
    (tmp_path / "fit-0001" / "g1").mkdir(parents=True)
    report.lacks("callbacks[1].file (TextIOWrapper)", str(tmp_path / "fit-0002"))
    assert told.notes[-1][1].endswith("the last 20 min of training: the checkpoint before them is kept")


def test_a_loop_on_a_full_disk_is_told_before_its_first_checkpoint(tmp_path, monkeypatch):
    told = Told()
    monkeypatch.setattr(generations, "SPARE", 1 << 62)
    one = Manual(told, str(tmp_path / "a" / "manual-1"), CheckpointSchedule(0.0, 1.0, 0.0), lambda path: None, "state")
    one.load(lambda path: pytest.fail("called"))

    ((topic, text),) = told.notes
    assert topic == "unsaved"
    assert "must stay free for the script" in text


def test_the_cost_is_the_time_since_the_last_checkpoint(tmp_path):
    told = Told()
    report = SaveReport(told)
    report.saved(time.monotonic() - 1200)
    report.failed(FULL, str(tmp_path / "fit-0001"))

    assert "20 min" in told.notes[0][1]
