"""Files that are open for writing, however they were opened, and the objects that write to them."""

# ruff: noqa: PTH123 - what scripts do

from __future__ import annotations

import sqlite3
import subprocess
import sys

from stallguard.probe.checkpoint import file_events
from tests.probe.checkpoint.test_written_files import again, close, walked, write


def test_a_child_that_writes_by_the_descriptor_of_the_script_is_no_other_process(tmp_path, files):
    with open(tmp_path / "log.txt", "a", buffering=1) as log:
        log.write("1\n")
        subprocess.run(["echo", "2"], stdout=log, check=True)
        ((_, _, size, _),) = files.keep(walked(), [])
    assert size == 4


def test_looking_at_a_database_keeps_the_locks_of_the_script(tmp_path, files, monkeypatch):
    path = tmp_path / "rows.db"
    mine = sqlite3.connect(path, isolation_level=None)
    mine.execute("create table rows (line text)")
    mine.execute("begin exclusive")
    monkeypatch.setattr(file_events.events, "changed", {})  # as if a library had opened it
    files.end()
    files = again(tmp_path)
    assert files.changing(walked(), []) == {str(path): "an SQLite database"}
    assert files.keep(walked(), []) == []
    other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('begin immediate')"
    found = subprocess.run([sys.executable, "-c", other, path], capture_output=True, text=True, check=False)
    assert "database is locked" in found.stderr
    mine.execute("rollback")
    mine.close()


def test_the_lines_of_a_file_that_is_opened_again_under_its_descriptors_number_are_written_before_they_are_kept(
    tmp_path,
):
    log, lengths = tmp_path / "log.txt", []
    for text in ("1\n", "2 of more\n"):
        with open(log, "w") as handle:
            write(handle, text)
            kept = again(tmp_path).keep(walked(), [])
            lengths += [size for name, _, size, _ in kept if name.endswith("log.txt")]
    assert lengths == [len("1\n"), len("2 of more\n")]


def test_a_file_that_is_opened_again_beside_its_closed_object_is_written_before_it_is_kept(tmp_path):
    handles = []
    for text in ("1\n", "2 of more\n"):
        handles.append((tmp_path / "log.txt").open("w"))
        write(handles[-1], text)
        kept = again(tmp_path).keep(walked(), [])
        close(handles[-1])
    assert [size for name, _, size, _ in kept if name.endswith("log.txt")] == [len("2 of more\n")]
