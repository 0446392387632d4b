"""Where a user's own files for stallguard are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.user_folder import user_folder


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/home/me"}, "/home/me/.config/stallguard"),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "/etc/mine"}, "/etc/mine/stallguard"),
        ({"HOME": "/home/me", "XDG_CONFIG_HOME": "relative"}, "/home/me/.config/stallguard"),
        ({}, f"{Path.home()}/.config/stallguard"),
    ],
)
def test_a_relative_folder_of_settings_is_ignored(env: dict[str, str], folder: str) -> None:
    assert user_folder(env) == Path(folder)
