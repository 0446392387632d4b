"""Which store a URL names, and which fleet it belongs to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.errors import StallguardError
from stallguard.fleet.store import StoreError, opening
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.opening import open_store, split


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


def test_a_verb_says_which_fleet_the_store_belongs_to(found, tmp_path):
    first, second = found(), found(store="other")
    with pytest.raises(StallguardError) as error:
        opening.check_owner(open_store(second.store), first)
    assert second.fleet in error.value.why
    (tmp_path / "empty").mkdir()
    with pytest.raises(StallguardError) as error:
        opening.check_owner(FolderStore(tmp_path / "empty"), first)
    assert "no fleet" in error.value.why
    with pytest.raises(StoreError, match="is its share mounted"):
        opening.check_owner(FolderStore(tmp_path / "absent"), first)


def test_a_mark_that_is_damaged_is_not_taken_for_none(tmp_path, found):
    made = found()
    store = open_store(made.store)
    store.remove("fleet")
    store.create("fleet", b"{")
    with pytest.raises(StallguardError, match="does not say which fleet"):
        opening.check_owner(store, made)


def test_a_file_of_another_authority_is_noticed(found):
    made, other = found(), found(store="other")
    with pytest.raises(StallguardError, match="has another authority than the fleet"):
        opening.check_owner(open_store(made.store), replace(made, ca=other.ca))
