"""`stallguard fleet init`: what it makes, who can read it, and what it refuses."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import stat
import subprocess
import sys

import pytest
from msgspec.structs import replace

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet import member_tls, membership, orders, store_owner
from stallguard.fleet.folder_store import FolderStore
from stallguard.fleet.store import StoreError
from stallguard.fleet.store_url import open_store
from stallguard.pool import founding

pytest.importorskip("cryptography")
FILE = ".config/stallguard/fleet.toml"


def test_init_makes_one_private_file_and_says_what_to_do_with_it(fleet, home, tmp_path):
    said = fleet("init", "--store", f"file://{tmp_path}/store", "--scheduler", "studio.local")

    found = membership.required(os.environ)
    assert (found.scheduler, found.store) == ("tls://studio.local:8786", f"file://{tmp_path}/store")
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert str(home / FILE) in said
    assert "on studio.local: stallguard fleet scheduler" in said
    assert [path.name for path in (home / ".config/stallguard").iterdir()] == ["fleet.toml"], (
        "a draft is left"
    )
    store_owner.check(open_store(found.store), found)


def test_the_key_of_the_authority_is_kept_nowhere(found, home):
    made = found()
    text = (home / FILE).read_text()
    assert text.count("PRIVATE KEY-----") == 2, "one key: its begin and its end"
    with pytest.raises(ssl.SSLError, match="key values mismatch"):
        _pair(made.ca, made.key, home)


def _pair(certificate, key, home):
    (home / "both.pem").write_text(certificate + key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(home / "both.pem")


def test_openssl_itself_accepts_the_members_certificate_and_no_other(found, tmp_path):
    one, other = found(), found(store="other")
    for name, text in (("ca", one.ca), ("member", one.certificate), ("stranger", other.certificate)):
        (tmp_path / name).write_text(text)
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(tmp_path / "ca")]
    ends = [
        subprocess.run(
            [*words, str(tmp_path / name)], capture_output=True, timeout=60, check=False
        ).returncode
        for name in ("member", "stranger")
    ]
    assert ends[0] == 0
    assert ends[1] != 0


def test_a_fleet_file_is_not_overwritten_without_force(fleet, home, tmp_path):
    words = ("init", "--store", f"file://{tmp_path}/store")
    fleet(*words)
    before = (home / FILE).read_bytes()
    (tmp_path / "other").mkdir()

    assert "in a fleet already" in fleet(*words, code=USAGE)
    assert (home / FILE).read_bytes() == before
    fleet("init", "--store", f"file://{tmp_path}/other", "--force")
    assert (home / FILE).read_bytes() != before


def test_of_two_files_that_are_written_at_once_the_first_stays(found, home):
    made = found()
    before = (home / FILE).read_bytes()
    with pytest.raises(FileExistsError):
        membership.write(home / FILE, made, replace=False)
    assert (home / FILE).read_bytes() == before
    assert [path.name for path in (home / FILE).parent.iterdir()] == ["fleet.toml"]


def test_a_store_of_another_fleet_is_refused_and_stays_that_fleets(fleet, found, home, tmp_path):
    first = found()
    file = (home / FILE).read_bytes()

    said = fleet("init", "--store", first.store, "--force", code=USAGE)

    assert first.fleet in said
    assert (home / FILE).read_bytes() == file
    store_owner.check(open_store(first.store), first)


def test_a_verb_says_which_fleet_the_store_belongs_to(found, tmp_path):
    first, second = found(), found(store="other")
    with pytest.raises(StallguardError) as error:
        store_owner.check(open_store(second.store), first)
    assert second.fleet in error.value.why
    (tmp_path / "empty").mkdir()
    with pytest.raises(StallguardError) as error:
        store_owner.check(FolderStore(tmp_path / "empty"), first)
    assert "no fleet" in error.value.why
    with pytest.raises(StoreError, match="is its share mounted"):
        store_owner.check(FolderStore(tmp_path / "absent"), first)


def test_a_mark_that_is_damaged_is_not_taken_for_none(tmp_path, found):
    made = found()
    store = open_store(made.store)
    store.remove("fleet")
    store.create("fleet", b"{")
    with pytest.raises(StallguardError, match="does not say which fleet"):
        store_owner.check(store, made)


def test_without_a_store_nothing_is_written(fleet, home, tmp_path):
    said = fleet("init", "--store", f"file://{tmp_path}/absent", code=CANNOT_RUN)
    assert "is its share mounted?" in said
    assert not (home / FILE).exists()
    assert "file:///share/fleet" in fleet("init", code=USAGE)


def test_a_file_that_cannot_be_written_leaves_the_store_to_the_next_try(found, home, tmp_path):
    (home / "file").write_text("")
    with pytest.raises(StallguardError, match="cannot write"):
        found(file=home / "file" / "fleet.toml")
    assert store_owner.owner(FolderStore(tmp_path / "store")) == ""
    found()


@pytest.mark.parametrize("address", ["a b", "host:port", "host:99999", "host/path", "user@"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(StallguardError, match="not an address"):
        founding.scheduler_address(address)


def test_addresses():
    assert founding.scheduler_address("10.0.0.7") == "tls://10.0.0.7:8786"
    assert founding.scheduler_address("[fe80::1]:99") == "tls://[fe80::1]:99"
    assert founding.scheduler_address("fe80::1") == "tls://[fe80::1]:8786"
    assert founding.scheduler_address("").startswith("tls://")


def test_odd_text_comes_back_as_it_was_written(found, home):
    made = membership.required(os.environ) if found() else None
    odd = type(made)(
        **{name: getattr(made, name) for name in made.__struct_fields__} | {"store": 'file:///a "\\" ü'}
    )
    membership.write(home / FILE, odd, replace=True)
    assert membership.required(os.environ) == odd
    with pytest.raises(StallguardError, match="cannot hold"):
        membership.text(
            type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"store": "a\x07"})
        )


def test_renewed_certificates_keep_name_and_token(fleet, found):
    first = found(days=1)
    fleet("init", "--renew", "--days", "20")
    second = membership.required(os.environ)
    now = dt.datetime.now(dt.UTC).timestamp()
    assert (second.fleet, second.token, second.store) == (first.fleet, first.token, first.store)
    assert member_tls.days_left(first, now) == pytest.approx(1, abs=0.01)
    assert member_tls.days_left(second, now) == pytest.approx(20, abs=0.01)
    assert "keeps store" in fleet("init", "--renew", "--store", first.store, code=USAGE)


def test_expired_certificates_are_said_with_the_day(found):
    made = found(now=dt.datetime(2024, 1, 1, tzinfo=dt.UTC), days=30)
    with pytest.raises(StallguardError) as error:
        member_tls.check_dates(made, dt.datetime(2024, 2, 1, tzinfo=dt.UTC).timestamp())
    assert "2024-01-31" in error.value.why
    assert "--renew" in error.value.cure
    member_tls.check_dates(made, dt.datetime(2024, 1, 30, tzinfo=dt.UTC).timestamp())


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


def test_a_file_with_another_token_is_noticed_and_a_store_of_an_older_version_is_used(tmp_path):
    (tmp_path / "store").mkdir()
    store = FolderStore(tmp_path / "store")
    made = membership.Membership(
        schema=1,
        fleet="lab",
        token="ab" * 32,
        store=store.url,
        scheduler="tls://a:1",
        ca="",
        certificate="",
        key="",
    )
    store_owner.claim(store, "lab", made.token)
    store_owner.check(store, made)
    with pytest.raises(StallguardError, match="has another token than the fleet"):
        store_owner.check(store, replace(made, token="cd" * 32))
    store.remove(orders.FLEET_KEY)
    store.replace(orders.FLEET_KEY, b'{"schema":1,"fleet":"lab"}')
    store_owner.check(store, replace(made, token="cd" * 32))
