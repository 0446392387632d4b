"""Makes a fleet: its authority, its mark in the store, and the files of its members; and revokes members.

The store is tried before anything is written, and marked before the file is: a fleet file whose store belongs to
another fleet would be of no use, and a mark without a file would make the store useless.
"""

from __future__ import annotations

import datetime as dt
import re
import secrets
import socket
from pathlib import Path

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.machines import authority, member_tls, trial
from stallguard.fleet.store import Store, StoreError, membership, opening, orders, signing
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.opening import open_store

DAYS = 730  # that certificates last
TOKEN = 32  # bytes


def found(
    store_url: str, scheduler: str, days: int, place: Path, authority_file: Path, now: dt.datetime, *,
    force: bool, name: str = "",
) -> Membership:  # fmt: skip
    """Make a fleet, and write the file of its first member to `place`.

    `scheduler`: HOST[:PORT]; `force`: replace a fleet file; `name`: of the member, "" for that of this machine.
    Returns the content of the fleet file.  Raises StallguardError.
    """
    address = member_tls.scheduler_address(scheduler)
    if not force:
        for one in (place, authority_file):
            if one.exists():
                raise _exists(one)
    store = _tried(store_url)
    made = authority.make(f"fleet-{secrets.token_hex(6)}", now)
    empty = Membership(
        schema=membership.SCHEMA, fleet=made.fleet, name="", store=store_url, scheduler=address,
        token=secrets.token_hex(TOKEN), ca="", certificate="", key="",
    )  # fmt: skip
    made, member = made.issue(empty, name or own_name(), days, now)
    membership.text(member)  # raises if an address cannot be written, before the store is marked
    try:
        opening.claim_store(store, member)
        try:
            store.replace(signing.REVOKED, member.revoked.encode())
            authority.write(authority_file, made)
            _write(place, member, force=force)
        except StallguardError:
            opening.release_store(store, made.fleet)
            raise
    except StoreError as error:
        raise _no_store(store_url, str(error)) from error
    return member


def beside(place: Path) -> Path:
    """Return the place of the authority's file.  `place`: of the fleet file."""
    return place.with_name(f"{place.stem}-authority.json")


def own_name() -> str:
    """Return the name that a member gets on this machine by itself: that of the machine, up to the first dot."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", membership.owner(orders.host_name(socket.gethostname())))[:63]


def invite(
    member: Membership, name: str, days: int, file: Path, authority_file: Path, now: dt.datetime, *, force: bool
) -> Membership:  # fmt: skip
    """Write the fleet file of one more member to `file`; return its content.  Raises StallguardError."""
    with authority.alone(authority_file):
        made, invited = authority.load(authority_file, member.fleet).issue(member, name, days, now)
        authority.write(authority_file, made)  # first: what is not in it could not be revoked
        _write(file, invited, force=force)
    return invited


def revoke(member: Membership, name: str, authority_file: Path, now: dt.datetime) -> None:
    """Make all certificates of a member void, and say so in the store.  Raises StallguardError."""
    if name == member.name:
        raise StallguardError(
            f"{name} is the member of this machine, which has the authority's file",
            why="who has that file can make members: if it was lost, no list can keep out who found it",
            cure="make a new fleet in another folder or prefix: stallguard fleet init",
            code=USAGE,
        )
    store = opening.open_fleet_store(member)
    with authority.alone(authority_file):
        made = authority.load(authority_file, member.fleet).revoke(name, now)
        authority.write(authority_file, made)
        try:
            store.replace(signing.REVOKED, made.revoked().encode())
        except StoreError as error:
            raise StallguardError(
                f"{name} is not revoked yet: the store cannot be written",
                why=str(error),
                cure=f"when it can be written: stallguard fleet revoke {name}",
                code=CANNOT_RUN,
            ) from error


def _tried(url: str) -> Store:
    """Return the store if it keeps what stallguard relies on.  Raises StallguardError."""
    try:
        store = open_store(url)
        broken = [one for one in trial.tried(store) if not one.kept]
    except StoreError as error:
        raise _no_store(url, str(error)) from error
    if broken:
        raise _no_store(url, "; ".join(f"{one.promise}: {one.seen}" for one in broken))
    return store


def _write(place: Path, member: Membership, *, force: bool) -> None:
    try:
        membership.write(place, member, replace=force)
    except FileExistsError as error:
        raise _exists(place) from error
    except OSError as error:
        raise StallguardError(
            f"cannot write {place}",
            why=error.strerror or str(error),
            cure=f"make that folder writable by you, or name another file: {membership.VARIABLE}=FILE",
            code=CANNOT_RUN,
        ) from error


def _exists(place: Path) -> StallguardError:
    return StallguardError(
        f"this machine is in a fleet already: {place}",
        why="without that file its jobs cannot be continued, and without the authority's no member can be made",
        cure=f"--force replaces it; or keep both: {membership.VARIABLE}=FILE names another file",
        code=USAGE,
    )


def _no_store(url: str, why: str) -> StallguardError:
    return StallguardError(
        f"{url} cannot be the store of a fleet",
        why=why,
        cure=f"a folder must exist, and be writable; stallguard doctor --store {url} tries it",
        code=CANNOT_RUN,
    )
