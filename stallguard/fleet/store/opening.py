"""Opens the store of a URL, and finds out which fleet it belongs to.

A shared folder (`file://`, NFS, SMB or a local disk) needs no package; `s3://` needs the extra `fleet`.  Another kind
is refused: whether it creates a file only if there is none was not tried.

Whose it is says its key `fleet`, made once and exclusively.  Two fleets in one store would see each other's jobs and
could verify none of them.  A store without the key belongs to no fleet; `stallguard run --store URL --job NAME` uses
such a store too.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from stallguard import jsontext
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.store import Store, StoreError, signing, within
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.orders import FLEET_KEY, SCHEMA, FleetCard, decode
from stallguard.fleet.store.records import Damaged

KINDS = ("file", "s3")
ANSWERS = 20.0  # s that a store has to say which fleet it belongs to


def owner_of(store: Store) -> str:
    """Return the name of the fleet that a store belongs to, "" for none.  Raises StoreError, StallguardError."""
    card = _card(store)
    return card.fleet if card else ""


def _card(store: Store) -> FleetCard | None:
    data = store.read(FLEET_KEY)
    if data is None:
        return None
    try:
        return decode(data, FleetCard)
    except Damaged as error:
        raise StallguardError(
            f"{store.url} does not say which fleet it belongs to",
            why=f"its key {FLEET_KEY!r} cannot be read: {error}",
            cure="put that key back from a backup; for a new fleet choose another folder or prefix",
            code=CANNOT_RUN,
        ) from error


def claim_store(store: Store, member: Membership) -> None:
    """Make `store` that of the member's fleet.  Raises StoreError, StallguardError if it belongs to another fleet."""
    card = FleetCard(schema=SCHEMA, fleet=member.fleet, proof=signing.proof(member))
    if store.create(FLEET_KEY, jsontext.exact(card)):
        return
    raise StallguardError(
        f"{store.url} is the store of another fleet: {owner_of(store)}",
        why="jobs are signed by members of their fleet, and another fleet cannot verify them",
        cure="have a file of that fleet made: stallguard fleet invite NAME; or name another folder or prefix",
        code=USAGE,
    )


def release_store(store: Store, fleet: str) -> None:
    """Take back `claim`, if the store belongs to `fleet`.  Raises StoreError, StallguardError."""
    if owner_of(store) == fleet:
        store.remove(FLEET_KEY)


def open_fleet_store(membership: Membership) -> Store:
    """Return the store of a fleet.  Raises StallguardError if it cannot be used, or is that of another fleet."""

    def opened_and_checked() -> Store:
        store = open_store(membership.store)
        check_owner(store, membership)
        return store

    try:
        return within(ANSWERS, opened_and_checked)
    except StoreError as error:
        raise StallguardError(
            f"the store {membership.store} cannot be read",
            why=str(error),
            cure="mount it, or correct its address and credentials; stallguard doctor tries it",
            code=CANNOT_RUN,
        ) from error


def check_owner(store: Store, membership: Membership) -> None:
    """Raise StoreError if the store cannot be read, StallguardError if it is not that of the membership's fleet."""
    card = _card(store)
    found = card.fleet if card else ""
    if found != membership.fleet:
        raise _another(store, membership, found)
    if card and card.proof != signing.proof(membership):
        raise StallguardError(
            f"this machine's file of {membership.fleet} has another authority than the fleet",
            why=f"{store.url} was made with that of the fleet; each machine refuses what another one issued",
            cure="have the file made again: stallguard fleet invite NAME",
            code=CANNOT_RUN,
        )


def _another(store: Store, membership: Membership, found: str) -> StallguardError:
    return StallguardError(
        f"{store.url} is not the store of this fleet, {membership.fleet}",
        why=f"it is that of {found}"
        if found
        else "it is of no fleet: another folder is mounted there, or it was emptied",
        cure="copy the file of the right fleet to this machine, or mount the right folder",
        code=CANNOT_RUN,
    )


def open_store(url: str) -> Store:
    """Return the store of a URL, or of the path of a folder.

    Raises StallguardError for another kind, and if the package for it is missing; StoreError if it cannot be reached.
    """
    kind, rest = split(url)
    if kind == "file":
        from stallguard.fleet.store.folder_store import FolderStore

        return FolderStore(Path(rest))
    from stallguard.fleet.store.object_store import ObjectStore

    return ObjectStore(rest)


def split(url: str) -> tuple[str, str]:
    """Return the kind of a URL and the rest: an absolute path, or "bucket/prefix".  Raises StallguardError."""
    if url.startswith("/"):
        return "file", url
    parts = urlsplit(url)
    place = f"{parts.netloc}{parts.path}".rstrip("/")
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return "file", unquote(parts.path)
    if parts.scheme == "s3" and parts.netloc:
        return "s3", place
    raise StallguardError(
        f"{url!r} is not a store",
        why="a store is file:///absolute/folder or s3://bucket/prefix"
        if parts.scheme in ("", *KINDS)
        else f"it is not known whether {parts.scheme}:// creates a file only if there is none",
        cure="see docs/fleet.md",
        code=USAGE,
    )
