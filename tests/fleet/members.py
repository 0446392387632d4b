"""Members of fleets that have real certificates: made once for each name, because a test needs no other ones."""

from __future__ import annotations

import datetime as dt
import functools
import os
from pathlib import Path

import pytest

from stallguard.fleet.machines import authority, founding
from stallguard.fleet.store import membership
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.signing import Signatures

pytest.importorskip("cryptography")
NOW = dt.datetime.now(dt.UTC)
AUTHORITIES = {}


def member(name, fleet="lab"):
    """Return a member of a fleet that no store is of."""
    by = AUTHORITIES.get(fleet) or authority.make(fleet, NOW)
    like = Membership(
        schema=membership.SCHEMA, fleet=fleet, name="", store="file:///nowhere", scheduler="tls://127.0.0.1:1",
        token="ab" * 32, ca="", certificate="", key="",
    )  # fmt: skip
    AUTHORITIES[fleet], made = by.issue(like, name, 30, NOW)
    return made


@functools.cache
def signs(name, fleet="lab"):
    """Return the signatures of such a member."""
    return Signatures(member(name, fleet))


def revoked(*names, fleet="lab"):
    """Return the list in which the authority of a fleet has revoked these members; the authority itself stays."""
    by = AUTHORITIES[fleet]
    for name in names:
        by = by.revoke(name, NOW)
    return by.revoked().encode()


def invited(file, name):
    """Return the place of the fleet file of one more member of the fleet whose founder has `file`."""
    made = Path(file).with_name(f"{name}-of-{Path(file).name}")
    if not made.exists():
        founder = membership.required({"STALLGUARD_FLEET": str(file)})
        founding.invite(founder, name, 30, made, founding.beside(Path(file)), dt.datetime.now(dt.UTC), force=False)
    return made


def signs_for(name, file=""):
    """Return the signatures of a member of the fleet of a file, by default that of this process."""
    place = Path(file or membership.path(os.environ))
    return Signatures(membership.required({"STALLGUARD_FLEET": str(invited(place, name))}))
