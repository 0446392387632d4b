"""Signatures of members: what counts, and what who can write to the store, or was revoked, can still do."""

from __future__ import annotations

import base64
import json
import ssl

import pytest
from msgspec.structs import replace

from stallguard.fleet.jobs import generations
from stallguard.fleet.jobs.generations import Found
from stallguard.fleet.store import joblog, orders
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.orders import Stop
from stallguard.fleet.store.records import Damaged, Holder, Position
from stallguard.fleet.store.signing import REVOKED, NotSigned, Signatures
from tests.fleet.members import NOW, revoked, signs

OWN, PRO = signs("mini"), signs("pro")
STRANGER = signs("mini", "other")  # of another fleet, with the same name
PLACE = "jobs/a/stop"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir()
    made = FolderStore(tmp_path / "store")
    made.replace(REVOKED, revoked())
    return made


def changed(data, **facts):
    return json.dumps({**json.loads(data), **facts}).encode()


def test_what_a_member_signs_is_read_by_another_with_its_name():
    assert OWN.verified(PLACE, PRO.sign(PLACE, b'{"a":1}')) == (b'{"a":1}', "pro")


def test_what_no_member_signed_for_this_key_is_refused():
    good = OWN.sign(PLACE, b'{"a":1}')
    forged = {
        "unsigned": b'{"a":1}',
        "of another fleet": STRANGER.sign(PLACE, b'{"a":1}'),
        "content changed": changed(good, content='{"a":2}'),
        "moved to another job": good.replace(b"jobs/a/stop", b"jobs/b/stop"),
        "of another key": OWN.sign("jobs/a/submission", b'{"a":1}'),
        "another's certificate": changed(good, certificate=json.loads(PRO.sign(PLACE, b"{}"))["certificate"]),
        "the authority's certificate": changed(good, certificate=der(OWN.member.ca)),
        "no signature": changed(good, signature=""),
    }
    for what, data in forged.items():
        with pytest.raises(NotSigned):
            pytest.fail(f"{what}: {OWN.verified(PLACE, data)}")


def der(pem):
    return base64.b64encode(ssl.PEM_cert_to_DER_cert(pem)).decode()


def test_a_certificate_that_a_stranger_issued_under_the_names_of_the_fleet_is_refused():
    """His authority and his member are named as ours: only the signature of the certificate differs."""
    from stallguard.fleet.machines import authority

    eve = Signatures(authority.make("lab", NOW).issue(OWN.member, "mini", 30, NOW)[1])
    with pytest.raises(NotSigned, match="did not issue its certificate"):
        OWN.verified(PLACE, eve.sign(PLACE, b"{}"))


@pytest.mark.parametrize(
    "text",
    ["", "A", "AAAA", "!", "\ud800", der(OWN.member.ca)[:-8], 40 * "MIIB"],
    ids=["empty", "short", "zeros", "no base64", "surrogate", "cut", "repeated"],
)
def test_a_hostile_certificate_or_signature_is_one_kind_of_error(text):
    good = OWN.sign(PLACE, b"{}")
    for name in ("certificate", "signature", "content"):
        with pytest.raises(Damaged):
            OWN.verified(PLACE, changed(good, **{name: text}))


# ---- machines belong to members -------------------------------------------------------------------------------------


# ---- revoked members ------------------------------------------------------------------------------------------------


def test_what_a_revoked_member_signed_is_refused_with_the_reason_and_the_others_still_count(home, store):
    mine, stop = Signatures(OWN.member), Stop(schema=1, job="a")
    assert orders.decode_stop(orders.encode(stop, PRO), mine, "a").signer == "pro"
    store.replace(REVOKED, revoked("pro"))
    assert mine.refresh(store) == ""
    with pytest.raises(NotSigned, match="pro signed it, and is revoked"):
        orders.decode_stop(orders.encode(stop, PRO), mine, "a")
    assert orders.decode_stop(orders.encode(stop, OWN), mine, "a").signer == "mini"
    assert not mine.is_void
    theirs = Signatures(PRO.member)
    theirs.refresh(store)
    assert theirs.is_void


def test_who_removes_or_replaces_the_list_undoes_nothing_for_those_who_saw_it(home, store):
    store.replace(REVOKED, revoked("pro"))
    mine = Signatures(OWN.member)
    mine.refresh(store)
    strangers = revoked(fleet="other")
    for data, why in (
        (revoked(), "an old one"),
        (strangers, "not signed by the authority"),
        (b"garbage", "cannot be read"),
        (None, "is missing in the store"),
    ):
        store.remove(REVOKED)
        if data is not None:
            store.replace(REVOKED, data)
        for verifier in (mine, Signatures(OWN.member)):  # and a later process of this home
            assert why in verifier.refresh(store)
            with pytest.raises(NotSigned, match="is revoked"):
                verifier.verified(PLACE, PRO.sign(PLACE, b"{}"))


def test_a_member_that_is_made_after_a_revocation_knows_it_from_its_file(home, store):
    late = Signatures(replace(OWN.member, revoked=revoked("pro").decode()))
    assert "an old one" in late.refresh(store)
    with pytest.raises(NotSigned, match="is revoked"):
        late.verified(PLACE, PRO.sign(PLACE, b"{}"))


def test_a_certificate_that_follows_the_list_is_not_trusted_by_tls(home, store):
    """OpenSSL takes each certificate of a file as an authority: the store's text must not get there."""
    store.replace(REVOKED, revoked("pro") + STRANGER.member.ca.encode())
    mine = Signatures(OWN.member)
    mine.refresh(store)
    assert mine.is_revoked(serial(PRO.member.certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(mine.file())
    assert context.cert_store_stats()["x509"] == 0
    assert context.cert_store_stats()["crl"] == 1


def serial(pem):
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_a_home_that_cannot_be_written_is_said_and_the_list_holds_all_the_same(home, store):
    home.write_text("")
    store.replace(REVOKED, revoked("pro"))
    mine = Signatures(OWN.member)
    assert "cannot be kept here" in mine.refresh(store)
    with pytest.raises(NotSigned, match="is revoked"):
        mine.verified(PLACE, PRO.sign(PLACE, b"{}"))


# ---- checkpoints ----------------------------------------------------------------------------------------------------


def test_a_checkpoint_counts_if_a_member_published_it_for_this_job_with_these_files(home, store, tmp_path):
    tail = joblog.perform(joblog.read_end("a"), store)
    tail, _ = joblog.perform(joblog.claim("a", tail, Holder(host="pro", boot="b", pid=1, nonce="n"), ""), store)
    (tmp_path / "x").write_text("x")
    found = [Found("p/x", 1, "0" * 64, tmp_path / "x")]
    published = generations.Publication("a", tail.number, tail, PRO)
    joblog.perform(published.publish("run", "noon", Position(1, 0, 7), found), store)
    good = replace(joblog.perform(joblog.read_end("a"), store).generation, newest=2, claim=9, at="later")
    generations.verify(good, "a", OWN)  # where it is in the log is not signed
    [file], digest = good.files, generations._digest(good)
    with pytest.raises(NotSigned, match="no member of the fleet signed it"):
        generations.verify(replace(good, signed=""), "a", OWN)
    for forged, job in (
        (replace(good, files=(replace(file, digest="1" * 64),)), "a"),
        (replace(good, position=Position(1, 0, 8)), "a"),
        (replace(good, number=2), "a"),
        (good, "b"),
        (replace(good, signed=STRANGER.sign("jobs/a/data/1", digest).decode()), "a"),
        (replace(good, signed="{}"), "a"),
    ):
        with pytest.raises(NotSigned):
            generations.verify(forged, job, OWN)
    store.replace(REVOKED, revoked("pro"))
    mine = Signatures(OWN.member)
    mine.refresh(store)
    with pytest.raises(NotSigned, match="pro signed it, and is revoked"):
        generations.verify(good, "a", mine)
