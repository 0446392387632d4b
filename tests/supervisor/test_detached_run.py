"""A later stallguard finds what the one before it left."""

from __future__ import annotations

import os

import pytest

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import AttemptRecord
from stallguard.supervisor.detached_run import _cleared


def test_an_attempt_is_recalled_as_it_was_kept(tmp_path):
    run = RunDir(tmp_path)
    kept = AttemptRecord(run_files.ATTEMPT_SCHEMA, 2, run_files.identity(os.getpid()), 1 << 61, "/tmp/x")
    run_files.keep_attempt(run, kept)
    assert run_files.recall_attempt(run) == kept
    run_files.attempt_file(run).write_text("{")
    assert run_files.recall_attempt(run) is None


def test_the_old_place_of_the_sockets_is_used_again_only_where_it_is_ours_alone(tmp_path):
    place = tmp_path / "place"
    assert _cleared(place).stat().st_mode & 0o777 == 0o700
    (place / "beats").write_text("")
    _cleared(place)
    assert list(place.iterdir()) == []
    place.chmod(0o755)
    with pytest.raises(PermissionError):
        _cleared(place)
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OSError):
        _cleared(tmp_path / "link")
