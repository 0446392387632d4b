"""Stores keep their promises, and the probe finds one that does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallguard.errors import StallguardError
from stallguard.fleet.machines.trial import PROMISES, tried
from stallguard.fleet.store import StoreError
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.opening import open_store, split

ROOT = Path(__file__).parents[3]


def test_each_kind_of_store_keeps_each_promise(url, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = tried(open_store(url))
    assert [one.promise for one in found] == list(PROMISES)
    assert all(one.kept for one in found), found


def test_the_probe_leaves_nothing_behind(url, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    store = open_store(url)
    tried(store)
    assert list(store.names("probe")) == []


class Broken:
    """A store whose methods are those of a good one, but for the given."""

    def __init__(self, store, **changed):
        self.url, self._store, self._changed = store.url, store, changed

    def __getattr__(self, name):
        return self._changed.get(name, getattr(self._store, name))


@pytest.mark.parametrize(
    ("method", "change", "promise"),
    [
        ("create", lambda store: lambda key, data: store.replace(key, data) or True, "exclusive creation"),
        ("create", lambda store: lambda key, data: store.read(key) is None and store.create(key, data),
         "exclusive creation"),
        ("replace", lambda store: store.create, "whole replacement"),
        ("names", lambda store: lambda folder: [], "listing after a write"),
        ("put", lambda store: lambda key, file: store.replace(key, file.read_bytes()[:-1]), "whole files"),
    ],
    ids=["overwrites", "looks before it writes", "keeps the old", "lists nothing", "cuts"],
)  # fmt: skip
def test_the_probe_names_the_promise_that_is_broken(folder, method, change, promise, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = tried(Broken(folder, **{method: change(folder)}))
    assert promise in [one.promise for one in found if not one.kept], found


def test_a_creation_that_is_repeated_finds_its_own_data(url):
    store = open_store(url)
    assert store.create("jobs/a/log/1", b"mine")
    assert store.create("jobs/a/log/1", b"mine")
    assert not store.create("jobs/a/log/1", b"another's")
    assert store.read("jobs/a/log/1") == b"mine"


def test_a_listing_shows_which_keys_were_replaced(url):
    store = open_store(url)
    assert store.versions("beats") == {}
    store.replace("beats/a@1", b"1")
    store.replace("beats/b@1", b"1")
    first = store.versions("beats")
    assert set(first) == {"a@1", "b@1"}
    assert store.versions("beats") == first
    store.replace("beats/a@1", b"2")
    store.remove("beats/b@1")
    second = store.versions("beats")
    assert set(second) == {"a@1"}
    assert second["a@1"] != first["a@1"]


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


def test_a_server_that_is_away_is_an_error(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError):
        open_store(bucket).read("jobs/a/log/1")


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


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/share/fleet", ("file", "/share/fleet")),
        ("file:///share/my%20fleet", ("file", "/share/my fleet")),
        ("s3://bucket/lab/", ("s3", "bucket/lab")),
    ],
)
def test_a_url_names_a_kind_and_a_place(url, expected):
    assert split(url) == expected


@pytest.mark.parametrize("url", ["gs://bucket", "fleet", "file://host/share", "s3://", "memory://x"])
def test_another_url_is_one_clear_error(url):
    with pytest.raises(StallguardError) as raised:
        split(url)
    assert raised.value.code == 2
    assert raised.value.why
