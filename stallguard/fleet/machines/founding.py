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

from msgspec.structs import replace

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.machines import authority, member_tls, trial
from stallguard.fleet.machines.authority import Authority
from stallguard.fleet.store import Store, StoreError, membership, opening, orders, signing
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.opening import open_store

DAYS = 730  # that certificates last
MOST_DAYS = 3650
TOKEN = 32  # bytes


def found(
    store_url: str, scheduler: str, days: int, place: Path, authority_file: Path, now: dt.datetime, *,
    force: bool, name: str = "",
) -> Membership:  # fmt: skip
    """Make a fleet, and write the file of its first member to `place`.

    `scheduler`: HOST[:PORT]; `force`: replace a fleet file; `name`: of the member, "" for that of this machine.
    Returns the content of the fleet file.  Raises StallguardError.
    """
    signing.require_package()
    address = scheduler_address(scheduler)
    if not force:
        for one in (place, authority_file):
            if one.exists():
                raise _exists(one)
    store = _tried(store_url)
    made = authority.make(f"fleet-{secrets.token_hex(6)}", now)
    empty = Membership(
        schema=membership.SCHEMA, fleet=made.fleet, store=store_url, scheduler=address,
        token=secrets.token_hex(TOKEN), ca=made.ca, certificate="", key="",
    )  # fmt: skip
    made, member = _member(made, empty, name or own_name(), days, now)
    membership.text(member)  # raises if an address cannot be written, before the store is marked
    try:
        opening.claim_store(store, member)
        try:
            store.replace(signing.REVOKED, member.revoked.encode())
            _write_authority(authority_file, made)
            _write(place, member, force=force)
        except StallguardError:
            opening.release_store(store, made.fleet)
            raise
    except StoreError as error:
        raise _no_store(store_url, str(error)) from error
    return member


def own_name() -> str:
    """Return the name that a member gets on this machine by itself: that of the machine, up to the first dot."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", membership.owner(orders.host_name(socket.gethostname())))[:63]


def renew(
    member: Membership, days: int, place: Path, authority_file: Path, now: dt.datetime, name: str = ""
) -> Membership:
    """Give the member of this machine a new certificate, and write its file again; all else stays.

    A fleet of which all members had the same file (membership.SHARED) gets an authority, and `name` for this machine.
    Raises StallguardError.
    """
    signing.require_package()
    is_shared = member.schema == membership.SHARED
    with authority.alone(authority_file):
        is_new = is_shared and not authority_file.exists()
        made = authority.make(member.fleet, now) if is_new else authority.load(authority_file, member.fleet)
        made, renewed = _member(made, member, name or own_name() if is_shared else member.name, days, now)
        try:
            if is_new and open_store(member.store).read(signing.REVOKED) is not None:
                raise StallguardError(
                    f"{member.fleet} has an authority already, made on another machine",
                    why="what that one issued would be refused",
                    cure="on that machine: stallguard fleet invite NAME",
                    code=USAGE,
                )
            _write_authority(authority_file, made)
            if is_shared:
                opening.claim_store_again(open_store(member.store), renewed)
                open_store(member.store).replace(signing.REVOKED, renewed.revoked.encode())
        except StoreError as error:
            raise _no_store(member.store, str(error)) from error
        _write(place, renewed, force=True)
    return renewed


def invite(
    member: Membership,
    name: str,
    days: int,
    file: Path,
    authority_file: Path,
    now: dt.datetime,
    *,
    force: bool,
) -> Membership:
    """Write the fleet file of one more member to `file`; return its content.  Raises StallguardError."""
    signing.require_package()
    with authority.alone(authority_file):
        made, invited = _member(authority.load(authority_file, member.fleet), member, name, days, now)
        _write_authority(authority_file, made)  # first: what is not in it could not be revoked
        _write(file, invited, force=force)
    return invited


def revoke(member: Membership, name: str, authority_file: Path, now: dt.datetime) -> None:
    """Make all certificates of a member void, and say so in the store.  Raises StallguardError."""
    signing.require_package()
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
        _write_authority(authority_file, made)
        try:
            store.replace(signing.REVOKED, made.revoked().encode())
        except StoreError as error:
            raise StallguardError(
                f"{name} is not revoked yet: the store cannot be written",
                why=str(error),
                cure=f"when it can be written: stallguard fleet revoke {name}",
                code=CANNOT_RUN,
            ) from error


def _member(
    by: Authority, like: Membership, name: str, days: int, now: dt.datetime
) -> tuple[Authority, Membership]:
    made, issued = by.issue(name, days, now)
    return made, replace(
        like, schema=membership.SCHEMA, name=name, ca=made.ca, certificate=issued.certificate, key=issued.key,
        revoked=made.revoked(),
    )  # fmt: skip


def scheduler_address(text: str) -> str:
    """Return HOST[:PORT] as an address: "tls://host:port"; "" is this machine.  Raises StallguardError."""
    host = text or socket.gethostname()
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"  # IPv6
    try:
        name, port = member_tls.endpoint(f"tls://{host}")
    except ValueError as error:
        raise StallguardError(
            f"{text!r} is not an address of a scheduler",
            why="it is HOST or HOST:PORT, as the other machines know it",
            cure="--scheduler studio-1.local:8786",
            code=USAGE,
        ) from error
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"


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


def _write_authority(place: Path, made: Authority) -> None:
    try:
        authority.write(place, made)
    except OSError as error:
        raise StallguardError(
            f"cannot write {place}",
            why=error.strerror or str(error),
            cure="it lists all members: what is not in it cannot be revoked; make it writable by you",
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
