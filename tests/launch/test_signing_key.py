"""The key of signatures is its owner's alone, one for all runs, and the same on each machine of a fleet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stallguard.launch import signing_key


def mode(file: str) -> int:
    return stat.S_IMODE(Path(file).stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o077, 0o777])
def test_one_key_is_made_for_all_runs_and_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        first = signing_key.ensure(tmp_path / "home", "")
    finally:
        os.umask(before)
    content = Path(first).read_bytes()
    assert len(content) == signing_key.BYTES
    assert mode(first) == 0o600
    assert signing_key.ensure(tmp_path / "home", "") == first
    assert Path(first).read_bytes() == content
    assert list((tmp_path / "home").iterdir()) == [Path(first)]


def test_each_user_has_another_key(tmp_path: Path) -> None:
    files = [signing_key.ensure(tmp_path / name, "") for name in "ab"]
    assert Path(files[0]).read_bytes() != Path(files[1]).read_bytes()


def test_each_machine_of_a_fleet_has_the_same_key_and_no_other_fleet_has_it(tmp_path: Path) -> None:
    keys = [
        Path(signing_key.of_fleet(tmp_path / machine, token)).read_bytes()
        for machine, token in (("a", "00" * 32), ("b", "00" * 32), ("b", "11" * 32))
    ]
    assert keys[0] == keys[1] != keys[2]
    assert bytes(32) not in keys  # it does not show the token
    assert mode(str(tmp_path / "a" / "fleet" / signing_key.NAME)) == 0o600


def test_the_key_that_a_worker_of_a_fleet_names_is_used(tmp_path: Path) -> None:
    assert signing_key.ensure(tmp_path / "home", "/fleet/key") == "/fleet/key"
    assert not (tmp_path / "home").exists()


def test_a_key_that_others_can_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    Path(signing_key.ensure(tmp_path, "")).chmod(0o644)
    with pytest.raises(PermissionError, match="others can read the key"):
        signing_key.ensure(tmp_path, "")


def test_a_directory_that_cannot_be_written_to_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(OSError, match="home"):
        signing_key.ensure(tmp_path / "home", "")
