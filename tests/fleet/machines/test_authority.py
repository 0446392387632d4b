"""The authority of a fleet: its file, what it issues and what it revokes."""

from __future__ import annotations

import json
import ssl
import stat
import subprocess

import pytest

from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE
from stallguard.fleet.store import membership
from stallguard.fleet.store.opening import open_store
from stallguard.fleet.store.signing import NotSigned, Signatures

pytest.importorskip("cryptography")


def test_the_key_of_the_authority_is_in_a_private_file_of_its_own(found, home):
    made = found()
    text = (home / ".config/stallguard/fleet.toml").read_text()
    assert text.count("PRIVATE KEY-----") == 2, "one key: its begin and its end"
    with pytest.raises(ssl.SSLError, match="key values mismatch"):
        _pair(made.ca, made.key, home)
    by = home / ".config/stallguard/fleet-authority.json"
    assert stat.S_IMODE(by.stat().st_mode) == 0o600
    _pair(made.ca, json.loads(by.read_text())["key"], home)


def _pair(certificate, key, home):
    (home / "both.pem").write_text(certificate + key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(home / "both.pem")


def test_openssl_itself_accepts_the_members_certificate_and_no_other(found, tmp_path):
    one, other = found(), found(store="other")
    for name, text in (("ca", one.ca), ("member", one.certificate), ("stranger", other.certificate)):
        (tmp_path / name).write_text(text)
    words = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", str(tmp_path / "ca")]
    ends = [
        subprocess.run([*words, str(tmp_path / name)], capture_output=True, timeout=60, check=False).returncode
        for name in ("member", "stranger")
    ]
    assert ends[0] == 0
    assert ends[1] != 0


def test_a_member_cannot_make_or_revoke_members_without_the_authoritys_file(fleet, found, home):
    found()
    by = home / ".config/stallguard/fleet-authority.json"
    by.rename(home / "stick.json")
    for words in (("invite", "mini"), ("revoke", "mini"), ("init", "--renew")):
        assert "--authority FILE" in fleet(*words, code=CANNOT_RUN)
    fleet("invite", "mini", "--out", str(home / "mini.toml"), "--authority", str(home / "stick.json"))
    (home / "stick.json").chmod(0o644)
    assert "is not private" in fleet("revoke", "mini", "--authority", str(home / "stick.json"), code=CANNOT_RUN)
    (home / "stick.json").chmod(0o600)
    (home / "stick.json").write_text("{}")
    said = fleet("revoke", "mini", "--authority", str(home / "stick.json"), code=CANNOT_RUN)
    assert "is not the file of an authority" in said


def test_the_authority_of_another_fleet_makes_no_member(fleet, found, home, tmp_path):
    found(store="other", file=tmp_path / "other.toml")
    found()
    said = fleet("invite", "mini", "--authority", str(tmp_path / "other-authority.json"), code=USAGE)
    assert "is of another fleet" in said


def test_a_member_is_revoked_and_invited_again_under_the_same_name(fleet, found, home):
    mine = Signatures(found(name="ann"))
    store = open_store(mine.member.store)
    old, new = home / "old.toml", home / "new.toml"
    fleet("invite", "mini", "--out", str(old))
    lost = Signatures(membership.required({"STALLGUARD_FLEET": str(old)}))
    assert "did you mean mini?" in fleet("revoke", "minni", code=NO_SUCH_RUN)
    assert "refuse it within a minute" in fleet("revoke", "mini")
    assert mine.refresh(store) == ""
    with pytest.raises(NotSigned, match="mini signed it, and is revoked"):
        mine.verified("x", lost.sign("x", b"{}"))
    fleet("revoke", "mini")  # again: nothing changes
    assert mine.number == 1
    fleet("invite", "mini", "--out", str(new))
    again = Signatures(membership.required({"STALLGUARD_FLEET": str(new)}))
    assert mine.verified("x", again.sign("x", b"{}")).by == "mini"
    with pytest.raises(NotSigned, match="mini signed it, and is revoked"):
        again.verified("x", lost.sign("x", b"{}"))
    assert "which has the authority's file" in fleet("revoke", "ann", code=USAGE)
