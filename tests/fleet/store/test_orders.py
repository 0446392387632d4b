"""Records that members write for each other: by whom each must be signed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.fleet.store import orders
from stallguard.fleet.store.orders import Cordon, Refusal, WorkerCard
from stallguard.fleet.store.records import Damaged
from stallguard.fleet.store.signing import NotSigned
from tests.fleet.members import signs

OWN, PRO = signs("mini"), signs("pro")
STRANGER = signs("mini", "other")  # of another fleet, with the same name


def card(host, by):
    return orders.encode(WorkerCard(schema=1, host=host, at="", state="ready"), by)


def test_a_member_writes_the_cards_of_its_own_machines_alone():
    for host in ("pro", "pro.a", "pro.lab.local"):
        assert orders.decode_card(card(host, PRO), host, OWN).host == host
    for host in ("mini", "pro-2", "prof", "mini.pro"):
        with pytest.raises(NotSigned, match=f"pro signed it, to which {host} does not belong"):
            orders.decode_card(card(host, PRO), host, OWN)
    renamed = PRO.sign("workers/pro", b'{"schema":1,"host":"mini","at":"","state":"ready"}')
    with pytest.raises(Damaged, match="workers/mini"):
        orders.decode_card(renamed, "pro", OWN)


def test_a_refusal_of_another_members_machine_or_of_another_job_does_not_count():
    refusal = Refusal(schema=1, job="a", host="mini", worker="w", at="", why="no wheel")
    good = orders.encode(refusal, OWN)
    assert orders.decode_refusal(good, "a", "mini", PRO).why == "no wheel"
    for data, job in ((orders.encode(refusal, PRO), "a"), (good, "b")):
        with pytest.raises(NotSigned):
            orders.decode_refusal(data, job, "mini", OWN)


def test_a_cordon_says_who_signed_it_and_one_that_nobody_signed_keeps_the_machine_out_and_lifts_nothing():
    cordon = Cordon(schema=1, host="mini", at="", why="hot")
    assert orders.decode_cordon(orders.encode(cordon, PRO), "mini", OWN).signer == "pro"
    for forged in (
        orders.encode(replace(cordon, is_lifted=True), STRANGER),
        b'{"schema":1,"host":"mini","at":"","why":"","is_lifted":true}',
        orders.encode(replace(cordon, host="pro", is_lifted=True), PRO),
    ):
        found = orders.decode_cordon(forged, "mini", OWN)
        assert (found.is_lifted, found.lifts_itself, found.signer) == (False, False, "")
        assert "fleet uncordon mini removes it" in found.why


def test_who_is_in_no_fleet_reads_what_is_there():
    assert orders.decode_card(card("mini", PRO), "mini", None).host == "mini"
    with pytest.raises(Damaged):
        orders.decode_card(b"{}", "mini", None)
