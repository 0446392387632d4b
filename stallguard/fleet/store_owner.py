"""Which fleet a store belongs to: its key `fleet`, made once and exclusively.

Two fleets in one store would see each other's jobs and could verify none of them.  A store without the key belongs to
no fleet; `stallguard run --store URL --job NAME` uses such a store too.
"""

from __future__ import annotations

from stallguard import jsontext
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet import signing
from stallguard.fleet.membership import Membership
from stallguard.fleet.orders import FLEET_KEY, SCHEMA, FleetCard, decode
from stallguard.fleet.records import Damaged
from stallguard.fleet.requests_at_once import within
from stallguard.fleet.store import Store, StoreError
from stallguard.fleet.store_url import open_store

ANSWERS = 20.0  # s that a store has to say which fleet it belongs to


def owner(store: Store) -> str:
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


def claim(store: Store, member: Membership) -> None:
    """Make `store` that of the member's fleet.  Raises StoreError, StallguardError if it belongs to another fleet."""
    if store.create(FLEET_KEY, _card_of(member)):
        return
    raise StallguardError(
        f"{store.url} is the store of another fleet: {owner(store)}",
        why="jobs are signed by members of their fleet, and another fleet cannot verify them",
        cure="have a file of that fleet made: stallguard fleet invite NAME; or name another folder or prefix",
        code=USAGE,
    )


def claim_again(store: Store, member: Membership) -> None:
    """Write down that the member's fleet has another authority now.  Raises StoreError, StallguardError."""
    found = owner(store)
    if found != member.fleet:
        raise _another(store, member, found)
    store.remove(FLEET_KEY)
    store.create(FLEET_KEY, _card_of(member))


def _card_of(member: Membership) -> bytes:
    return jsontext.exact(FleetCard(schema=SCHEMA, fleet=member.fleet, proof=signing.proof(member)))


def release(store: Store, fleet: str) -> None:
    """Take back `claim`, if the store belongs to `fleet`.  Raises StoreError, StallguardError."""
    if owner(store) == fleet:
        store.remove(FLEET_KEY)


def opened(membership: Membership) -> Store:
    """Return the store of a fleet.  Raises StallguardError if it cannot be used, or is that of another fleet."""

    def opened_and_checked() -> Store:
        store = open_store(membership.store)
        check(store, membership)
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


def check(store: Store, membership: Membership) -> None:
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
