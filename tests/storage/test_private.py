"""Directories and files for their owner alone: what each function makes, takes, and refuses."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stallguard.storage import private

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
ANOTHER = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@AS_ROOT
@pytest.mark.parametrize(
    ("owner", "rights", "is_safe"),
    [
        (0, 0o755, True), (0, 0o777, False), (0, 0o775, False), (0, 0o1777, True),
        (ANOTHER, 0o755, False), (ANOTHER, 0o1777, False),
    ],
)  # fmt: skip
def test_a_directory_is_safe_if_only_this_user_or_root_can_exchange_its_entries(
    tmp_path: Path, owner: int, rights: int, is_safe: bool
) -> None:
    tmp_path.chmod(rights)
    os.chown(tmp_path, owner, -1)

    assert private.is_safe(tmp_path) is is_safe


def test_a_link_to_a_private_directory_is_not_ours_alone(tmp_path: Path) -> None:
    place, link = tmp_path / "place", tmp_path / "link"
    private.make(place)
    link.symlink_to(place)
    file = tmp_path / "file"
    private.write(file, b"")

    assert [private.is_ours_alone(path) for path in (place, link, file, tmp_path / "none")] == [
        True, False, False, False,
    ]  # fmt: skip


def test_a_directory_of_ours_gets_the_rights_that_it_lacks_and_keeps_its_special_ones(tmp_path: Path) -> None:
    for before, after in ((0o500, 0o700), (0o755, 0o700), (0o2775, 0o2700), (0o700, 0o700)):
        tmp_path.chmod(before)
        private.own(tmp_path)
        assert mode(tmp_path) == after


def test_where_a_file_is_there_can_be_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(NotADirectoryError):
        private.ensure(file)


def test_a_link_is_replaced_by_the_file_that_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"another's")
    link.symlink_to(target)
    private.write(link, b"ours")

    assert (link.is_symlink(), link.read_bytes(), target.read_bytes()) == (False, b"ours", b"another's")
    assert mode(link) == 0o600
