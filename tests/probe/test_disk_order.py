"""The order of what reaches the disk, asked of a kernel that answers as macOS' does, and of this one."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from pathlib import Path

import pytest

from stallguard.fleet.store.folder_store import FolderStore
from stallguard.probe import disk_order
from stallguard.probe.checkpoint.generations import CheckpointStore
from stallguard.storage import run_files
from stallguard.supervisor import waiter
from tests.storage.test_run_files import END

ASKED = {disk_order.BARRIER: "barrier", disk_order.FULL: "full"}


class Disk:
    """A kernel that notes what it is asked for; the names of descriptors are read from /proc.

    `answers`: the errno of each command, by file system.  fcntl(2) of macOS names those that have them: APFS and HFS
    both, FAT F_FULLFSYNC; gh:libuv/libuv/pull/2135 has read what the others answer in Apple's sources.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[int, int] | None) -> None:
        self.done: list[str] = []
        self._answers = answers
        rename, replace, sync, control = os.rename, os.replace, os.fsync, fcntl.fcntl

        def asked(descriptor, command, *rest):
            if command not in ASKED:
                return control(descriptor, command, *rest)
            if (self._answers or {}).get(command):
                raise OSError(self._answers[command], os.strerror(self._answers[command]))
            return self._note(ASKED[command], descriptor) or 0

        def synced(descriptor):
            self._note("fsync", descriptor)
            sync(descriptor)

        def moved(real):
            def move(old, new, **where):
                real(old, new, **where)
                self.done.append(f"name {Path(new).name}")

            return move

        monkeypatch.setattr(disk_order, "IS_MACOS", answers is not None)
        monkeypatch.setattr(fcntl, "fcntl", asked)
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", moved(rename))
        monkeypatch.setattr(os, "replace", moved(replace))
        monkeypatch.setattr(Path, "replace", moved(replace))

    def _note(self, what: str, descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        self.done.append(f"{what} {name.replace(str(os.getpid()), 'PID')}")


@pytest.fixture
def disk(monkeypatch):
    if sys.platform != "linux":
        pytest.skip("which file is synced is read from /proc")
    return lambda answers: Disk(monkeypatch, answers)


def test_a_generation_is_on_a_macs_disk_before_its_name_and_its_name_before_current_says_it(disk, tmp_path):
    seen = disk({})
    CheckpointStore(str(tmp_path / "fit")).write({}, [b"x"])
    assert seen.done == [
        "fsync tensors.bin", "fsync facts.json", "barrier tmp-g1-PID", "name g1",
        "barrier CURRENT.tmp", "name CURRENT", "barrier fit",
    ]  # fmt: skip


def test_on_linux_a_generation_is_synced_as_before(disk, tmp_path):
    seen = disk(None)
    CheckpointStore(str(tmp_path / "fit")).write({}, [b"x"])
    assert seen.done == [
        "fsync tensors.bin", "fsync facts.json", "fsync tmp-g1-PID", "name g1",
        "fsync CURRENT.tmp", "name CURRENT", "fsync fit",
    ]  # fmt: skip


@pytest.mark.parametrize(("answers", "way", "last"), [({}, "barrier", "full"), (None, "fsync", "fsync")])
def test_what_came_of_a_run_survives_and_its_text_is_there_before_its_name(disk, tmp_path, answers, way, last):
    seen = disk(answers)
    run_files.write(tmp_path / "outcome.json", END)
    assert seen.done == [f"{way} .outcome.json.PID", "name outcome.json", f"{last} {tmp_path.name}"]


@pytest.mark.parametrize(("answers", "way", "last"), [({}, "barrier", "full"), (None, "fsync", "fsync")])
def test_what_a_store_has_taken_survives(disk, tmp_path, answers, way, last):
    seen = disk(answers)
    FolderStore(tmp_path).create("jobs/one", b"x")
    kinds = [one.split()[0] for one in seen.done]
    assert kinds == [way, way, "name", last]
    assert seen.done[0] == f"{way} content"
    assert seen.done[-1] == f"{last} jobs"


@pytest.mark.parametrize(
    ("answers", "order", "keep"),
    [
        ({}, "barrier", "full"),  # APFS, HFS
        ({disk_order.BARRIER: errno.EINVAL}, "full", "full"),  # FAT
        (dict.fromkeys(ASKED, errno.ENOTSUP), "fsync", "fsync"),  # SMB, NTFS
        (dict.fromkeys(ASKED, errno.EINVAL), "fsync", "fsync"),  # WebDAV
        (dict.fromkeys(ASKED, errno.ENOTTY), "fsync", "fsync"),  # ZFS
        (None, "fsync", "fsync"),
    ],
)
def test_a_file_system_that_refuses_gets_the_next_best(disk, tmp_path, answers, order, keep):
    seen = disk(answers)
    with (tmp_path / "file").open("wb") as file:
        disk_order.order(file.fileno())
        disk_order.keep(file.fileno())
    assert seen.done == [f"{order} file", f"{keep} file"]


@pytest.mark.parametrize(
    ("answers", "way"),
    [({}, "full"), *((dict.fromkeys(ASKED, refusal), "fsync") for refusal in disk_order.REFUSALS), (None, "fsync")],
)
def test_the_exit_code_of_a_detached_training_survives(disk, tmp_path, monkeypatch, answers, way):
    seen = disk(answers)
    with (tmp_path / "exit").open("wb") as file, monkeypatch.context() as mac:
        if answers is not None:
            mac.setattr(sys, "platform", "darwin")
            mac.setattr(fcntl, "F_FULLFSYNC", disk_order.FULL, raising=False)
        waiter._keep(file.fileno())
    assert seen.done == [f"{way} exit"]


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_an_error_of_the_disk_is_no_refusal(disk, tmp_path, number):
    seen = disk(dict.fromkeys(ASKED, number))
    for sync in (disk_order.order, disk_order.keep):
        with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match=os.strerror(number)):
            sync(file.fileno())
    assert seen.done == []
