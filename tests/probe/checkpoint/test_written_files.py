"""Files that callbacks write line by line hold after a resume what they would hold without a kill."""

# ruff: noqa: PTH123 - what scripts do

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.probe.checkpoint.object_walk import Walk
from stallguard.probe.checkpoint.written_files import WrittenFiles
from tests.probe.checkpoint.restarts import Restarts


class Logger:
    """A callback with an open log."""

    def __init__(self, path):
        self.log = open(path, "w")  # noqa: SIM115 - as such callbacks do


class CSVLogger:
    """As much of Keras' own as is looked at."""

    def __init__(self, filename):
        self.filename, self.append_header = filename, True
        self.csv_file = open(filename, "w")  # noqa: SIM115


def walked(*callbacks):
    found = Walk()
    for index, callback in enumerate(callbacks):
        found.enter(callback, f"callbacks[{index}]")
    return found


def again(tmp_path):
    """Return what another start has."""
    found = WrittenFiles(str(tmp_path / "copies"))
    found.begin()
    return found


def append(path, text):
    with open(path, "a") as file:
        file.write(text)


def test_lines_after_the_checkpoint_are_cut_and_kept_elsewhere(tmp_path, files):
    log = tmp_path / "log.txt"
    log.write_text("before\n")
    append(log, "1\n2\n")
    kept = files.keep(walked(), [])
    append(log, "3\n")
    again(tmp_path).restore(kept, walked(), [])
    append(log, "3 again\n")
    assert log.read_text() == "before\n1\n2\n3 again\n"
    assert (tmp_path / "copies" / "cut-off").read_text().endswith("3\n")


@pytest.mark.parametrize("how", ["Path.open", "io.open", "binary"])
def test_however_it_is_opened(tmp_path, files, how):
    log = tmp_path / "log.txt"
    if how == "Path.open":
        with log.open("a") as file:
            file.write("1\n")
    elif how == "io.open":
        with io.open(log, "a") as file:  # noqa: UP020
            file.write("1\n")
    else:
        with open(log, "ab") as file:
            file.write(b"1\n")
    assert [entry[0] for entry in files.keep(walked(), [])] == [str(log)]


def test_only_what_came_since_the_save_before_is_copied(tmp_path, files, monkeypatch):
    log = tmp_path / "log.txt"
    append(log, "x" * 100_000)
    files.keep(walked(), [])
    append(log, "end")
    first = (tmp_path / "copies" / "1").stat()
    ((_, copy, size, _),) = files.keep(walked(), [])
    assert (copy, size) == ("1", 100_003)
    assert (tmp_path / "copies" / "1").stat().st_ino == first.st_ino
    log.write_text("anew")
    assert files.keep(walked(), [])[0][1:3] == ["2", 4]  # it did not grow: another copy, the first stays


def test_a_log_that_the_script_opens_anew_has_its_lines_again_and_goes_on_after_them(tmp_path, files):
    path = tmp_path / "log.txt"
    first = Logger(path)
    first.log.write("1\n2\n")
    kept = files.keep(walked(first), [first])
    first.log.write("3\n")
    first.log.close()
    second = Logger(path)  # empties it
    again(tmp_path).restore(kept, walked(second), [second])
    second.log.write("3\n")
    second.log.close()
    assert path.read_text() == "1\n2\n3\n"


@pytest.mark.parametrize("mode", ["w", "a"])
def test_a_log_that_a_logger_opened_before_the_fit_goes_on_after_the_lines_of_the_checkpoint(tmp_path, mode):
    logger = logging.getLogger("test_written_files")
    logger.setLevel(logging.INFO)

    @contextlib.contextmanager
    def attempt():
        handler = logging.FileHandler(tmp_path / "train.log", mode)
        logger.addHandler(handler)
        found = again(tmp_path)
        yield found
        found.end()
        logger.removeHandler(handler)
        handler.close()

    with attempt() as files:
        logger.info("1")
        kept = files.keep(walked(), [])
        logger.info("2")
    with attempt() as files:
        assert files.restore(kept, walked(), []) == 1
        logger.info("2 again")
    assert (tmp_path / "train.log").read_text() == "1\n2 again\n"


def test_two_logs_of_one_name_in_two_folders_are_told_apart(tmp_path):
    logger = logging.getLogger("test_written_files")
    handlers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        handlers.append(logging.FileHandler(tmp_path / name / "train.log", "w"))
        handlers[-1].stream.write(f"{name}\n")
        logger.addHandler(handlers[-1])
    first = again(tmp_path)
    kept = first.keep(walked(), [])
    for handler in handlers:
        handler.stream.write("later\n")
    first.end()
    second = again(tmp_path)
    assert second.restore(kept, walked(), []) == 2
    second.end()
    for handler in handlers:
        logger.removeHandler(handler)
        handler.close()
    assert [(tmp_path / name / "train.log").read_text() for name in ("a", "b")] == ["a\n", "b\n"]


def test_a_log_with_another_name_in_this_start_goes_on_there(tmp_path, files):
    first = Logger(tmp_path / "monday.txt")
    first.log.write("1\n")
    kept = files.keep(walked(first), [first])
    first.log.close()
    second = Logger(tmp_path / "tuesday.txt")
    again(tmp_path).restore(kept, walked(second), [second])
    second.log.write("2\n")
    second.log.close()
    assert (tmp_path / "tuesday.txt").read_text() == "1\n2\n"
    assert (tmp_path / "monday.txt").read_text() == "1\n"


def test_the_header_of_a_csv_log_is_not_written_twice(tmp_path, files):
    first = CSVLogger(tmp_path / "log.csv")
    first.csv_file.write("epoch,loss\n0,1\n")
    kept = files.keep(walked(first), [first])
    first.csv_file.close()
    second = CSVLogger(tmp_path / "log.csv")
    again(tmp_path).restore(kept, walked(second), [second])
    assert not second.append_header
    second.csv_file.write("1,0.5\n")
    second.csv_file.close()
    assert (tmp_path / "log.csv").read_text() == "epoch,loss\n0,1\n1,0.5\n"


def test_a_fit_that_starts_over_appends_to_what_was_there_before_it(tmp_path, files):
    log = tmp_path / "log.txt"
    log.write_text("the fit before\n")
    append(log, "1\n")
    append(log, "2\n")
    again(tmp_path).rewind()
    append(log, "1 again\n")
    assert log.read_text() == "the fit before\n1 again\n"


def test_a_file_that_is_opened_only_after_the_checkpoint_goes_on_after_what_it_had_before_the_fit(tmp_path, files):
    log = tmp_path / "late.txt"
    log.write_text("the fit before\n")
    kept = files.keep(walked(), [])
    append(log, "1\n")
    again(tmp_path).restore(kept, walked(), [])
    append(log, "1 again\n")
    append(log, "2\n")
    assert log.read_text() == "the fit before\n1 again\n2\n"


def test_a_checkpoint_writes_no_file_that_the_script_does_not_open(tmp_path, files):
    """A checkpoint that somebody else made names a file of the user."""
    profile, log = tmp_path / ".profile", tmp_path / "log.txt"
    append(log, "evil\n")
    ((_, copy, size, _),) = files.keep(walked(), [])
    profile.write_text("mine\n")
    (tmp_path / "copies" / "base").write_text(f"0 {profile}\n")
    other = again(tmp_path)
    other.restore([[str(profile), copy, size], [str(log), str(profile), 5]], walked(), [])
    append(log, "1\n")
    assert log.read_text() == "evil\n1\n"  # not the content of a file that is no copy
    other.rewind()
    append(log, "2\n")
    with open(profile) as file:
        assert file.read() == "mine\n"


def test_a_file_that_is_not_opened_yet_is_in_the_next_checkpoint_too(tmp_path, files):
    log = tmp_path / "log.txt"
    append(log, "1\n")
    kept = files.keep(walked(), [])
    append(log, "2\n")
    second = again(tmp_path)
    second.restore(kept, walked(), [])
    third = again(tmp_path)
    third.restore(second.keep(walked(), []), walked(), [])
    append(log, "2 again\n")
    assert log.read_text() == "1\n2 again\n"


def test_what_is_written_as_a_whole_or_read_is_left_alone(tmp_path, files):
    (tmp_path / "whole.json").write_text("{}")
    with open(tmp_path / "whole.json", "w") as file:
        file.write("{}")
    with open(tmp_path / "whole.json") as file:
        assert file.read() == "{}"
    assert files.keep(walked(), []) == []


@pytest.mark.parametrize("fact", ["is written while the script does not write", "grows beyond a position"])
def test_a_log_that_another_process_writes_to_is_not_cut(tmp_path, files, fact):
    log = tmp_path / "log.txt"
    with open(log, "a", buffering=1) as mine:
        mine.write("1\n")
        if fact == "is written while the script does not write":
            mine.close()
        kept = files.keep(walked(), [])
        assert len(kept) == 1
        subprocess.run(["sh", "-c", f"echo another >> '{log}'"], check=True)
        if mine.closed:
            append(log, "2\n")
        assert files.keep(walked(), []) == []
    assert list(files.changed().values()) == ["another process writes to it too"]
    before = log.read_text()
    second = again(tmp_path)
    second.restore(kept, walked(), [])  # of the save that did not know
    append(log, "2 again\n")
    assert log.read_text() == before + "2 again\n"
    again(tmp_path).rewind()
    append(log, "1 again\n")
    assert log.read_text() == before + "2 again\n1 again\n"


def test_a_log_that_grows_between_the_resume_and_its_opening_is_not_cut(tmp_path, files):
    log = tmp_path / "log.txt"
    append(log, "1\n")
    kept = files.keep(walked(), [])
    append(log, "2\n")
    second = again(tmp_path)
    second.restore(kept, walked(), [])
    subprocess.run(["sh", "-c", f"echo another >> '{log}'"], check=True)
    append(log, "2 again\n")
    assert log.read_text() == "1\n2\nanother\n2 again\n"


OPENED = {
    "appending": lambda path: open(path, "a"),  # noqa: SIM115
    "a descriptor": lambda path: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND),
    "anew": lambda path: open(path, "w"),  # noqa: SIM115
}


def write(handle, text):
    if isinstance(handle, int):
        os.write(handle, text.encode())
    else:
        handle.write(text)


def close(handle):
    os.close(handle) if isinstance(handle, int) else handle.close()


def begun(how, path):
    """Return a handle that a script opens, and writes to, before its fit."""
    handle = OPENED[how](path)
    write(handle, "header\n")
    return handle


@pytest.mark.parametrize("how", OPENED)
@pytest.mark.parametrize("kills", [1, 2])
def test_a_fit_that_was_killed_before_its_first_checkpoint_begins_with_the_file_as_it_was(tmp_path, how, kills):
    log = tmp_path / "log.txt"
    if how != "anew":
        log.write_text("of another run\n")
    before = log.read_text() if how != "anew" else ""
    for _ in range(kills):
        handle = begun(how, log)
        killed = again(tmp_path)
        killed.rewind()
        killed.changing(walked(), [])
        write(handle, "1\n2\n")
        close(handle)
        killed.end()
    handle = begun(how, log)
    last = again(tmp_path)
    last.rewind()
    last.changing(walked(), [])
    write(handle, "1 again\n")
    close(handle)
    last.end()
    assert log.read_text() == before + "header\n1 again\n"


@pytest.mark.parametrize("how", [how for how in OPENED if how != "anew"])
def test_what_the_pipeline_writes_before_the_fit_begins_is_of_the_fit(tmp_path, how):
    """Keras draws the first batch of a generator in the call of fit, and the fit begins after that."""
    log, read = tmp_path / "log.txt", []
    for is_last in (False, True):
        handle = begun(how, log)
        one = again(tmp_path)
        one.rewind()
        read.append(log.read_text())  # as the pipeline does
        write(handle, "drawn\n")
        one.changing(walked(), [])
        write(handle, "1\n" if is_last else "1\n2\n")
        close(handle)
        one.end()
    assert read[0] == read[1]
    assert log.read_text() == "header\ndrawn\n1\n"


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "opened in the fit"])
def test_a_log_that_the_script_removes_as_it_starts_is_not_cut_to_the_length_of_the_one_before(tmp_path, is_open):
    log = tmp_path / "log.txt"
    for header in ("begun at 9:59\n", "begun at 10:00, again\n"):
        log.unlink(missing_ok=True)
        log.write_text(header)
        handle = OPENED["appending"](log) if is_open else None
        one = again(tmp_path)
        one.rewind()
        handle = handle or OPENED["appending"](log)
        one.changing(walked(), [])
        assert log.read_text() == header
        write(handle, "1\n")
        close(handle)
        one.end()


def test_a_file_that_is_new_in_the_first_attempt_and_appended_to_in_the_next_begins_alike(tmp_path):
    log, read = tmp_path / "log.txt", []
    for is_last in (False, True):
        handle = OPENED["appending"](log) if log.exists() else begun("anew", log)
        one = again(tmp_path)
        one.rewind()
        read.append(log.read_text())
        write(handle, "1\n" if is_last else "1\n2\n")
        close(handle)
        one.end()
    assert read == ["header\n", "header\n"]
    assert log.read_text() == "header\n1\n"


@pytest.mark.parametrize("how", OPENED)
def test_a_fit_that_starts_over_after_its_files_were_restored_begins_with_them_as_they_were(tmp_path, how):
    log = tmp_path / "log.txt"
    handle = begun(how, log)
    first = again(tmp_path)
    first.changing(walked(), [])
    write(handle, "1\n")
    kept = first.keep(walked(), [])
    close(handle)
    first.end()
    handle = begun(how, log)
    second = again(tmp_path)
    second.changing(walked(), [])
    second.restore(kept, walked(), [])
    shutil.rmtree(tmp_path / "copies")  # as the checkpoints of a fit that starts over
    second.rewind()
    second.changing(walked(), [])
    write(handle, "1 again\n")
    assert len(second.keep(walked(), [])) == 1
    close(handle)
    second.end()
    assert log.read_text() == "header\n1 again\n"
    handle = begun(how, log)
    third = again(tmp_path)
    third.rewind()
    third.changing(walked(), [])
    close(handle)
    third.end()
    assert log.read_text() == "header\n"


CHILD = Path(__file__).parent / "children" / "files.py"
CONTINUED = ["descriptor", "descriptor_anew", "descriptor_of_batch", "rows", "method", "held",
             "file_of_epoch", "gzip_of_batch", "anew"]  # fmt: skip


@pytest.mark.tf
def test_however_a_script_writes_lines_it_has_them_once_after_two_kills(receiver, tmp_path):
    def files(folder):
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    plain = Restarts(receiver, tmp_path, CHILD, sys.executable)
    (tmp_path / "plain").mkdir()
    plain.folder = tmp_path / "plain"
    plain.attempt(*CONTINUED, guarded=False)
    (tmp_path / "killed").mkdir()
    killed = Restarts(receiver, tmp_path / "killed", CHILD, sys.executable)
    killed.attempt(*CONTINUED, kill="0,1,3")
    killed.attempt(*CONTINUED, kill="0,2,0", resume=True)
    resumed = killed.attempt(*CONTINUED, resume=True)
    assert resumed.notes("inexact") == []
    assert len((plain.folder / "method.txt").read_bytes().splitlines()) == 24  # else it shows nothing
    assert files(killed.folder) == files(plain.folder)


@pytest.mark.tf
@pytest.mark.parametrize(
    ("way", "how"),
    [
        ("database", "database.db (an SQLite database)"),
        ("database_of_batch", "database_of_batch.db (an SQLite database)"),
        ("hdf5", "hdf5.h5 (an HDF5 file)"),
        ("hdf5_of_batch", "hdf5_of_batch.h5 (an HDF5 file)"),
        ("in_place", "in_place.bin (changed in place)"),
        ("reread", "reread.json (read and written anew)"),
        ("gzip_stream", "gzip_stream.gz (compressed)"),
        ("shared", "shared.txt (another process writes to it too)"),
    ],
)
def test_a_file_that_cannot_be_continued_is_left_and_named_when_it_is_saved_and_when_it_is_resumed(
    receiver, tmp_path, way, how
):
    script = Restarts(receiver, tmp_path, CHILD, sys.executable)
    script.attempt(way, kill="0,1,3")
    # The save says it with the next record, which a kill can prevent.
    newest = max(script.checkpoints.glob("*/fit-0001/g*/facts.json"), key=lambda file: file.stat().st_mtime_ns)
    (stays,) = json.loads(newest.read_text().split("\n", 1)[1])["stays"].items()
    assert how == f"{Path(stays[0]).name} ({stays[1]})"
    resumed = script.attempt(way, resume=True)
    (note,) = resumed.notes("inexact")
    assert note.split("; ")[0].endswith(how)
    if way == "shared":
        lines = (tmp_path / "shared.txt").read_text().splitlines()
        assert lines.count("another") == 10 + 15  # none is lost; of 24 batches one is trained twice
