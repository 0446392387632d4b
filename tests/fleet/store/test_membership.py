"""The file of a member."""

from __future__ import annotations

import os

import pytest

from stallguard.errors import StallguardError
from stallguard.fleet.store import membership

pytest.importorskip("cryptography")
FILE = ".config/stallguard/fleet.toml"
FILES = ["fleet-authority.json", "fleet.toml"]


def test_of_two_files_that_are_written_at_once_the_first_stays(found, home):
    made = found()
    before = (home / FILE).read_bytes()
    with pytest.raises(FileExistsError):
        membership.write(home / FILE, made, replace=False)
    assert (home / FILE).read_bytes() == before
    assert sorted(path.name for path in (home / FILE).parent.iterdir()) == FILES


def test_odd_text_comes_back_as_it_was_written(found, home):
    made = membership.required(os.environ) if found() else None
    odd = type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"store": 'file:///a "\\" ü'})
    membership.write(home / FILE, odd, replace=True)
    assert membership.required(os.environ) == odd
    with pytest.raises(StallguardError, match="cannot hold"):
        membership.text(
            type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"store": "a\x07"})
        )
