"""Makes a fleet: its certificates, its token, its mark in the store, and the one file that its members have.

The store is tried before anything is written, and marked before the file is: a fleet file whose store belongs to
another fleet would be of no use, and a mark without a file would make the store useless.
"""

from __future__ import annotations

import datetime as dt
import secrets
import socket
from pathlib import Path

from msgspec.structs import replace

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet import member_tls, membership, store_owner, store_probe
from stallguard.fleet.membership import Membership
from stallguard.fleet.store import Store, StoreError
from stallguard.fleet.store_url import open_store
from stallguard.pool import certificates

DAYS = 730  # that certificates last
MOST_DAYS = 3650
TOKEN = 32  # bytes


def found(
    store_url: str, scheduler: str, days: int, place: Path, now: dt.datetime, *, force: bool
) -> Membership:
    """Make a fleet and write its file to `place`; return its content.

    `scheduler`: HOST[:PORT]; `force`: replace a fleet file.  Raises StallguardError.
    """
    certificates.require_package()
    address = scheduler_address(scheduler)
    if place.exists() and not force:
        raise _exists(place)
    store = _tried(store_url)
    fleet = f"fleet-{secrets.token_hex(6)}"
    made = certificates.make(fleet, days, now)
    member = Membership(
        schema=membership.SCHEMA, fleet=fleet, store=store_url, scheduler=address, token=secrets.token_hex(TOKEN),
        ca=made.ca, certificate=made.certificate, key=made.key,
    )  # fmt: skip
    membership.text(member)  # raises if an address cannot be written, before the store is marked
    try:
        store_owner.claim(store, fleet, member.token)
        try:
            _write(place, member, force=force)
        except StallguardError:
            store_owner.release(store, fleet)
            raise
    except StoreError as error:
        raise _no_store(store_url, str(error)) from error
    return member


def renew(member: Membership, days: int, place: Path, now: dt.datetime) -> Membership:
    """Give a fleet new certificates, and write its file again; its name, token and store stay."""
    certificates.require_package()
    made = certificates.make(member.fleet, days, now)
    renewed = replace(member, ca=made.ca, certificate=made.certificate, key=made.key)
    _write(place, renewed, force=True)
    return renewed


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
        broken = [one for one in store_probe.tried(store) if not one.kept]
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
        why="without that file its jobs can be neither read nor continued",
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
