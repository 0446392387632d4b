"""`stallguard fleet init`: what it makes, who can read it, and what it refuses."""

from __future__ import annotations

import datetime as dt
import os
import stat
import subprocess
import sys

import pytest

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.machines import member_tls
from stallguard.fleet.store import StoreError, membership, opening
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.opening import open_store
from stallguard.fleet.store.signing import Signatures

pytest.importorskip("cryptography")
FILE = ".config/stallguard/fleet.toml"
FILES = ["fleet-authority.json", "fleet.toml"]


def test_init_makes_one_private_file_and_says_what_to_do_with_it(fleet, home, tmp_path):
    said = fleet("init", "--store", f"file://{tmp_path}/store", "--scheduler", "studio.local")

    found = membership.required(os.environ)
    assert (found.scheduler, found.store) == ("tls://studio.local:8786", f"file://{tmp_path}/store")
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert str(home / FILE) in said
    assert "on studio.local: stallguard fleet scheduler" in said
    assert sorted(path.name for path in (home / ".config/stallguard").iterdir()) == FILES, "a draft is left"
    opening.check_owner(open_store(found.store), found)


@pytest.mark.costly
def test_a_fleet_file_is_not_overwritten_without_force(fleet, home, tmp_path):
    words = ("init", "--store", f"file://{tmp_path}/store")
    fleet(*words)
    before = (home / FILE).read_bytes()
    (tmp_path / "other").mkdir()

    assert "in a fleet already" in fleet(*words, code=USAGE)
    assert (home / FILE).read_bytes() == before
    fleet("init", "--store", f"file://{tmp_path}/other", "--force")
    assert (home / FILE).read_bytes() != before


@pytest.mark.costly
def test_a_store_of_another_fleet_is_refused_and_stays_that_fleets(fleet, found, home, tmp_path):
    first = found()
    file = (home / FILE).read_bytes()

    said = fleet("init", "--store", first.store, "--force", code=USAGE)

    assert first.fleet in said
    assert (home / FILE).read_bytes() == file
    opening.check_owner(open_store(first.store), first)


def test_without_a_store_nothing_is_written(fleet, home, tmp_path):
    said = fleet("init", "--store", f"file://{tmp_path}/absent", code=CANNOT_RUN)
    assert "is its share mounted?" in said
    assert not (home / FILE).exists()
    assert "file:///share/fleet" in fleet("init", code=USAGE)


def test_a_file_that_cannot_be_written_leaves_the_store_to_the_next_try(found, home, tmp_path):
    (home / "file").write_text("")
    with pytest.raises(StallguardError, match="cannot write"):
        found(file=home / "file" / "fleet.toml")
    assert opening.owner_of(FolderStore(tmp_path / "store")) == ""
    found()


# ---- members --------------------------------------------------------------------------------------------------------


def test_a_member_that_is_invited_signs_with_a_key_of_its_own(fleet, found, home):
    first = found(name="ann")
    said = fleet("invite", "mini", "--days", "9")
    file = home / ".config/stallguard/fleet-mini.toml"
    assert "move it to ~/.config/stallguard/fleet.toml on that machine" in said
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second = membership.required({"STALLGUARD_FLEET": str(file)})
    assert (second.fleet, second.store, second.scheduler) == (first.fleet, first.store, first.scheduler)
    assert (second.name, second.ca, second.key == first.key) == ("mini", first.ca, False)
    assert member_tls.days_left(second, dt.datetime.now(dt.UTC).timestamp()) == pytest.approx(9, abs=0.01)
    assert Signatures(first).verified("x", Signatures(second).sign("x", b"{}")).by == "mini"
    assert "cannot be named" in fleet("invite", "mini.local", code=USAGE)
    assert "in a fleet already" in fleet("invite", "mini", code=USAGE)  # its file is there


def test_a_revocation_that_the_store_does_not_take_is_published_by_the_next_try(
    fleet, found, home, tmp_path, monkeypatch
):
    mine = Signatures(found())
    fleet("invite", "mini", "--out", str(home / "mini.toml"))

    def fails(self, key, data):
        raise StoreError("No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(FolderStore, "replace", fails)
        said = fleet("revoke", "mini", code=CANNOT_RUN)
    assert "mini is not revoked yet" in said
    assert mine.refresh(open_store(mine.member.store)) == ""
    assert mine.number == 0
    fleet("revoke", "mini")
    mine.refresh(open_store(mine.member.store))
    assert mine.number == 1


def test_a_renewed_certificate_keeps_the_fleet_and_what_was_signed_before(fleet, found):
    first = found(days=1)
    fleet("init", "--renew", "--days", "20")
    second = membership.required(os.environ)
    now = dt.datetime.now(dt.UTC).timestamp()
    assert (second.fleet, second.name, second.ca, second.store) == (first.fleet, first.name, first.ca, first.store)
    assert member_tls.days_left(first, now) == pytest.approx(1, abs=0.01)
    assert member_tls.days_left(second, now) == pytest.approx(20, abs=0.01)
    assert Signatures(second).verified("x", Signatures(first).sign("x", b"{}")).by == first.name
    assert "keeps store" in fleet("init", "--renew", "--store", first.store, code=USAGE)


def test_the_extra_that_is_missing_is_named(home, tmp_path):
    code = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from stallguard.cli import main; sys.argv = sys.argv[1:]; sys.exit(main())"
    )
    words = ["stallguard", "fleet", "init", "--store", f"file://{tmp_path}/store"]
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == CANNOT_RUN, ended.stderr
    assert "stallguard-train[fleet]" in ended.stderr
    assert not (home / FILE).exists()
