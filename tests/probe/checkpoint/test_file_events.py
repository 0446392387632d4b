"""Which files the script opens for writing is seen from audit events, and what changes them in another way."""

# ruff: noqa: PTH123 - what scripts do

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import os
import sqlite3
import sys
import threading

import pytest

from tests.probe.checkpoint.test_written_files import again, append, walked


def test_after_the_fit_nothing_is_registered_and_open_was_never_replaced(tmp_path):
    before = builtins.open, io.open, os.open
    found = again(tmp_path)
    assert (builtins.open, io.open, os.open) == before
    found.end()
    append(tmp_path / "log.txt", "1\n")
    assert found.keep(walked(), []) == []


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("open", ()),
        ("open", ("a", "w", None)),
        ("open", (object(), "w", os.O_WRONLY)),
        ("open", ([], "r", os.O_RDONLY)),
        ("open", ("\0", "a", os.O_WRONLY | os.O_APPEND)),
        ("sqlite3.connect", ()),
        ("sqlite3.connect", (object(),)),
        ("os.rename", ()),
        ("os.rename", ([], [])),
    ],
)
def test_an_event_of_any_form_is_heard_without_an_error(files, event, arguments):
    with open(__file__):  # else no renaming is looked at
        sys.audit(event, *arguments)
    assert files.keep(walked(), []) == []


def test_a_database_that_is_only_read_is_not_named(tmp_path, files):
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("create table rows (line text)")
    files.end()
    second = again(tmp_path)
    with contextlib.closing(sqlite3.connect(f"file:{tmp_path}/rows.db?mode=ro", uri=True)) as database:
        database.execute("select * from rows").close()
    assert second.changed() == {}
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as database:
        database.execute("select * from rows").close()
    assert second.changed() == {}


def test_what_a_library_writes_by_itself_is_its_own_matter(tmp_path, files):
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    code = compile(f"with open({str(tmp_path / 'its.log')!r}, 'a') as file: file.write('1')", library, "exec")
    thread = threading.Thread(target=exec, args=(code, {}))
    thread.start()
    thread.join()
    assert files.keep(walked(), []) == []


def test_the_bytecode_that_python_writes_anew_is_no_file_of_the_script(tmp_path, files, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "a_helper_of_the_script.py"
    source.write_text("n = 1")
    helper = importlib.import_module(source.stem)
    (compiled,) = (tmp_path / "__pycache__").iterdir()
    first = compiled.read_bytes()
    source.write_text("n = 1000")
    try:
        assert importlib.reload(helper).n == 1000
    finally:
        del sys.modules[source.stem]
    assert compiled.read_bytes() != first  # it was read, and written anew
    assert not any("__pycache__" in path for path in files.changed())  # the source is this test's own file
