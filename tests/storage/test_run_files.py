"""What came of a run is on the disk, however full that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

END = run_files.Outcome(1, 0, "the training is finished", "2026-11-22T01:00:00Z", 3600.0, 1000, 0, 1, 0.0)


def test_an_outcome_is_read_as_it_was_written_and_its_room_is_given_back(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run_files.keep_room(run)
    run_files.conclude(run, END)

    assert run_files.outcome(run) == END
    assert names(tmp_path) == ["outcome.json"]


FULL = """
import errno, os, sys
from pathlib import Path
from stallguard.storage import run_files as outcome
from stallguard.storage.paths import RunDir
from tests.storage.test_run_files import END

place = RunDir(Path(sys.argv[1]))
whole = open
def full(self, mode="r", *rest, **more):
    if "w" in mode:
        raise OSError(errno.ENOSPC, "No space left on device")
    return whole(self, mode, *rest, **more)
Path.open = full
outcome.conclude(place, END)
"""


def test_on_a_full_disk_it_is_written_into_the_room_that_was_kept(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run_files.keep_room(run)
    subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], check=True)

    assert run_files.outcome(run) == END
    assert names(tmp_path) == ["outcome.json"]


def names(path: Path) -> list[str]:
    return [found.name for found in path.iterdir()]


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs a small file system of its own")
def test_on_a_file_system_that_is_really_full(tmp_path: Path) -> None:
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", tmp_path], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        run = RunDir(tmp_path)
        run_files.keep_room(run)
        with pytest.raises(OSError, match="No space"):
            fill(tmp_path / "filler")
        run_files.conclude(run, END)
        assert run_files.outcome(run) == END
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_what_is_written_is_synced_before_it_takes_the_place_of_the_old(tmp_path: Path, monkeypatch) -> None:
    done: list[str] = []
    sync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        done.append(f"rename to {target.name}")
        return rename(self, target)

    if sys.platform != "linux":
        pytest.skip("which file is synced is read from /proc")
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    run_files.write(tmp_path / "run.json", END)

    assert done == [f"sync .run.json.{os.getpid()}", "rename to run.json", f"sync {tmp_path.name}"]


def test_a_draft_that_found_no_room_does_not_stay(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "fsync", _refuses)
    with pytest.raises(OSError, match="No space"):
        run_files.write(tmp_path / "run.json", END)

    assert names(tmp_path) == []


def _refuses(_descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_what_was_asked_is_known_although_run_json_is_empty_or_nested_too_deep(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    asked = run_files.RunRequest(1, "one", ["train.py"], ["python", "train.py"], "/", "", run_files.Identity(1, 0.0))
    run_files.keep_asked(run, asked)
    for damage in (b"", b"[" * 100_000, b"\xff"):
        run.asked.write_bytes(damage)
        assert run_files.asked(run) == asked
