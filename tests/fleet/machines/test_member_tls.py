"""Addresses and certificates by which members connect."""

from __future__ import annotations

import datetime as dt

import pytest

from stallguard.errors import StallguardError
from stallguard.fleet.machines import member_tls

pytest.importorskip("cryptography")


@pytest.mark.parametrize("address", ["a b", "host:port", "host:99999", "host/path", "user@"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(StallguardError, match="not an address"):
        member_tls.scheduler_address(address)


def test_addresses():
    assert member_tls.scheduler_address("10.0.0.7") == "tls://10.0.0.7:8786"
    assert member_tls.scheduler_address("[fe80::1]:99") == "tls://[fe80::1]:99"
    assert member_tls.scheduler_address("fe80::1") == "tls://[fe80::1]:8786"
    assert member_tls.scheduler_address("").startswith("tls://")


def test_expired_certificates_are_said_with_the_day(found):
    made = found(now=dt.datetime(2024, 1, 1, tzinfo=dt.UTC), days=30)
    with pytest.raises(StallguardError) as error:
        member_tls.check_dates(made, dt.datetime(2024, 2, 1, tzinfo=dt.UTC).timestamp())
    assert "2024-01-31" in error.value.why
    assert "--renew" in error.value.cure
    member_tls.check_dates(made, dt.datetime(2024, 1, 30, tzinfo=dt.UTC).timestamp())
