"""A store in a folder: what is seen whole, who can read it, and which links are not followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallguard.fleet.store import StoreError
from stallguard.fleet.store.folder_store import FolderStore


def test_a_creation_that_was_done_although_it_failed_counts(folder, monkeypatch):
    """NFS repeats a rename whose answer was lost, and then says that the draft does not exist."""
    rename = os.rename

    def answer_is_lost(*names, **folders):
        rename(*names, **folders)
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "rename", answer_is_lost)
    assert folder.create("jobs/a/log/1", b"mine")


def test_a_folder_that_is_away_is_an_error_and_not_an_empty_store(tmp_path):
    store = FolderStore(tmp_path / "share" / "fleet")
    with pytest.raises(StoreError):
        store.read("jobs/a/log/1")
    with pytest.raises(StoreError):
        store.names("jobs")
    with pytest.raises(StoreError):
        store.create("jobs/a/log/1", b"x")
    assert not (tmp_path / "share").exists()


def test_a_write_that_fails_leaves_what_was_there(folder, monkeypatch):
    folder.replace("jobs/a/beats/1", b"1")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(StoreError):
        folder.replace("jobs/a/beats/1", b"2")
    assert folder.read("jobs/a/beats/1") == b"1"


def test_a_link_in_a_store_is_not_followed(folder, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (folder.folder / "data").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError):
        folder.read("data")
    with pytest.raises(StoreError):
        folder.get("data", tmp_path / "copy")


@pytest.mark.parametrize("link", ["jobs", "jobs/V", "jobs/V/data", "jobs/V/data/1", ".drafts"])
def test_a_folder_that_is_a_link_is_followed_by_nothing(folder, tmp_path, link):
    """Who can write to the store, and has no token, would have the files of a bystander read, replaced or removed."""
    victim = tmp_path / "victim"
    below = Path(*Path("jobs/V/data/1").parts[len(Path(link).parts) :]) if link != ".drafts" else Path()
    (victim / below).mkdir(parents=True)
    for name in ("1-0123456789abcdef", "thesis.tex"):
        (victim / below / name).write_text("mine")
    (folder.folder / link).parent.mkdir(parents=True, exist_ok=True)
    (folder.folder / link).symlink_to(victim)
    key = "jobs/V/data/1/1-0123456789abcdef"
    (tmp_path / "other").write_text("x")
    acts = [
        lambda: folder.replace(key, b"x"),
        lambda: folder.create(key + "-new", b"x"),
        lambda: folder.put(key, tmp_path / "other"),
    ]
    if link != ".drafts":
        acts += [
            lambda: folder.read(key),
            lambda: folder.get(key, tmp_path / "copy"),
            lambda: folder.names("jobs/V/data/1"),
            lambda: folder.remove(key),
            lambda: folder.remove("jobs/V/data/1/thesis.tex"),
        ]
    for act in acts:
        with pytest.raises(StoreError, match="symbolic link"):
            act()
    folder.remove(link)  # of the link itself
    assert not (folder.folder / link).is_symlink() or link == ".drafts"
    assert sorted(path.name for path in (victim / below).iterdir()) == ["1-0123456789abcdef", "thesis.tex"]
    assert {path.read_text() for path in (victim / below).iterdir()} == {"mine"}


def test_links_inside_of_what_is_removed_are_removed_and_not_followed(folder, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.tex").write_text("mine")
    (folder.folder / "jobs/V/data/1").mkdir(parents=True)
    (folder.folder / "jobs/V/data/1/link").symlink_to(tmp_path / "victim")
    folder.remove("jobs/V/data/1")
    assert folder.names("jobs/V/data") == []
    assert (tmp_path / "victim" / "thesis.tex").read_text() == "mine"


def test_a_pipe_in_a_store_is_not_waited_for(folder):
    (folder.folder / "jobs").mkdir()
    os.mkfifo(folder.folder / "jobs" / "pipe")
    with pytest.raises(StoreError, match="no file"):
        folder.read("jobs/pipe")


@pytest.mark.parametrize(("mode", "expected"), [(0o755, 0o600), (0o2775, 0o660), (0o1777, 0o666)])
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_who_cannot_write_to_the_folder_cannot_read_what_is_in_it(folder, tmp_path, mode, expected, umask):
    folder.folder.chmod(mode)
    (tmp_path / "code").write_text("x")
    before = os.umask(umask)
    try:
        folder.create("jobs/a/log/1", b"x")
        folder.replace("jobs/a/beats/1", b"x")
        folder.put("code/1", tmp_path / "code")
    finally:
        os.umask(before)
    files = [path for path in folder.folder.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {expected}
    folders = [path for path in folder.folder.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o2000 for path in folders} == {mode & 0o2000}
    assert {path.stat().st_mode & 0o777 for path in folders} == {expected | (expected & 0o444) >> 2}


@pytest.mark.parametrize("key", ["../victim", "jobs/../../victim", "/victim"])
def test_a_key_that_leads_out_of_the_folder_is_refused(folder, tmp_path, key):
    (tmp_path / "victim").write_text("as it was")
    for act in (
        lambda: folder.replace(key, b"x"),
        lambda: folder.create(key, b"x"),
        lambda: folder.read(key),
        lambda: folder.remove(key),
    ):
        with pytest.raises(StoreError, match="is not a key"):
            act()
    assert (tmp_path / "victim").read_text() == "as it was"
