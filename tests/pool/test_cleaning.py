"""What a worker removes that no job uses any more."""

from __future__ import annotations

import os
import time

import pytest

from stallguard.pool import cleaning, environments, job_files
from stallguard.storage import paths

LONG_AGO = time.time() - 100 * 86400


@pytest.fixture
def left(tmp_path, monkeypatch):
    """A function that makes a file, or a folder with one in it, that was used long ago."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "state"))

    def make(path, *, is_folder=False, at=LONG_AGO):
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_folder:
            (path / "bin").mkdir(parents=True)
        else:
            path.touch()
        os.utime(path, (at, at))
        return path

    return make


def test_an_environment_that_no_job_used_for_a_month_goes_and_one_in_use_stays(left):
    home = environments.home()
    for name in ("old", "busy", "new"):
        left(home / name, is_folder=True)
        left(home / f"{name}.whole", at=time.time() if name == "new" else LONG_AGO)
    cleaning.clean((), (str(home / "busy" / "bin" / "python"),))
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"busy", "new"}
    assert not (home / "old.whole").exists()
    cleaning.clean((), ())  # its use counts from the last time at which it was in use
    assert (home / "busy").is_dir()


def test_logs_and_fetched_checkpoints_that_are_left_over_go_and_those_in_use_stay(left):
    old, busy = left(job_files.log_of("old")), left(job_files.log_of("busy"))
    fetched = left(paths.home() / "fetched" / "job-1", is_folder=True)
    now = left(paths.home() / "fetched" / "job-2", is_folder=True, at=time.time())
    cleaning.clean(("busy",), ())
    assert [path.exists() for path in (old, busy, fetched, now)] == [False, True, False, True]


def test_a_machine_that_has_had_no_job_has_nothing_to_remove(left):
    cleaning.clean((), ())
