"""Which paths lead through the folders that macOS guards."""

from __future__ import annotations

from pathlib import Path

from stallguard.host import guarded_folders


def test_the_data_volume_is_another_name_of_the_same_folders():
    home = Path("/Users/me")
    assert guarded_folders.guarded(Path("/System/Volumes/Data/Users/me/Desktop/x"), home) == "~/Desktop"
    assert guarded_folders.guarded(Path("/System/Volumes/Data/Users/me/train"), home) is None


def test_links_that_lead_to_each_other_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert guarded_folders.guarded(tmp_path / "a" / "x", tmp_path) is None


def test_volumes_are_guarded_but_the_system_volume_is_not():
    home = Path("/Users/me")
    assert guarded_folders.guarded(Path("/Volumes/Stick/train"), home) == "/Volumes/Stick"
    assert guarded_folders.guarded(Path("/Volumes"), home) is None
    assert guarded_folders.guarded(Path("/Users/me/train"), home) is None
