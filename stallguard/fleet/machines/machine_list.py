"""The machines of a fleet as the store has them: their cards, and which of them take no job.

A card is renewed each minute.  Its age is a difference of the clocks of two machines, so it is for people alone; it is
corrected by what the card says of its own clock.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from stallguard.core.messages import duration
from stallguard.errors import NO_SUCH_RUN, USAGE, StallguardError, nearest
from stallguard.fleet.store import Store, each, entry, orders
from stallguard.fleet.store.membership import owner
from stallguard.fleet.store.orders import SCHEDULER, Cordon, WorkerCard
from stallguard.fleet.store.records import Damaged
from stallguard.fleet.store.signing import NotSigned, Signatures

SCHEMA = 1
READERS = 64  # requests at once: the cards of a thousand machines are read within a second
SILENT = 180.0  # s without a new card from which a machine counts as silent; its worker renews it each minute
T = TypeVar("T")
FREE, TAKEN, WATCHED = "free", "taken", "watched"


class FleetMachine(msgspec.Struct, frozen=True):
    """A machine.  `state`: as in its card, or silent, cordoned, unreadable; `seen`: seconds since its last card."""

    host: str  # its name in the fleet
    state: str  # ready, busy, closed, gone, silent, cordoned, unreadable
    why: str = ""  # in words
    seen: float | None = msgspec.field(default=None, name="seen_seconds_ago")
    cordon: Cordon | None = None  # why it takes no job
    card: WorkerCard | None = None  # what it offers


class FleetMachines(msgspec.Struct, frozen=True):
    """All machines of a fleet."""

    schema: int
    fleet: str  # its name
    machines: list[FleetMachine]  # by name
    differ: list[str] = []  # versions that are not the same on all machines, in words


def read(store: Store, signatures: Signatures, now: dt.datetime, most: int | None = None) -> list[FleetMachine]:
    """Return all machines that have a card or a cordon, by name; of more than `most` any.  Raises StoreError."""
    cards, cordons = store.names("workers"), store.names("cordons")
    hosts = [host for host in sorted({*cards, *cordons}) if orders.JOB_NAME.fullmatch(host)]
    if most is not None and len(hosts) > most:
        hosts = sorted(random.sample(hosts, most))
    keys = [kind.place(host=host) for host in hosts for kind in (WorkerCard, Cordon)]
    found = each(lambda key: entry(store, key), keys, READERS)
    return [described(*one, signatures, now) for one in zip(hosts, found[::2], found[1::2], strict=True)]


def described(
    host: str, card_data: bytes | None, cordon_data: bytes | None, signatures: Signatures, now: dt.datetime
) -> FleetMachine:
    """Return a machine from what the store has of it."""
    cordon = orders.decode_cordon(cordon_data, host, signatures) if cordon_data is not None else None
    cordon = None if cordon is not None and cordon.is_lifted else cordon
    card = seen = None
    state, why = "gone", ""
    try:
        if card_data is not None:
            card = orders.decode_card(card_data, host, signatures)
            age = age_of(card, now)
            seen = None if age < -SILENT else max(0.0, age)
            shown = as_seen(card, now)
            state, why = shown.state, shown.why
    except (Damaged, ValueError, TypeError) as error:  # the last two: no time, or one without a zone
        state, why = ("unreadable", f"its card cannot be used ({error}); its worker writes a new one each minute")
    if cordon is not None:
        state, why = "cordoned", cordon.why + (f" (signed by {cordon.signer})" if cordon.signer else "")
    return FleetMachine(host, state, why, seen, cordon, card)


def name_state(data: bytes | None, before: bytes | None, host: str, home: str, signatures: Signatures) -> str:
    """Return whether the name of a machine is FREE, TAKEN by a worker elsewhere, or WATCHED.

    `data`: the card with that name; `before`: what it was at the first look, None at that one; `home`: of the worker
    that asks, which is the only one of its home.  No time is read: a worker that lives renews its card each minute,
    and one that was killed does not.  A card that the machine's member did not sign is of no worker.
    """
    if data is None:
        return FREE
    with contextlib.suppress(Damaged):  # who wrote it is not known: it is watched like one of another home
        try:
            card = orders.decode_card(data, host, signatures)
        except NotSigned:
            return FREE
        if card.state == "gone" or (home and card.home == home):
            return FREE
    return WATCHED if before is None or before == data else TAKEN


def versions(store: Store, signatures: Signatures, machines: Sequence[FleetMachine]) -> dict[str, Mapping[str, str]]:
    """Return the versions of each machine that is not gone, and of the scheduler, by name.  Raises StoreError."""
    found: dict[str, Mapping[str, str]] = {
        one.host: one.card.versions for one in machines if one.card is not None and one.state != "gone"
    }
    data = store.read(SCHEDULER)
    with contextlib.suppress(Damaged):  # it says nothing of versions
        if data is not None:
            card = orders.decode_scheduler(data, signatures)
            found[f"the scheduler ({card.host})"] = card.versions
    return found


def differences(of: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return in words each package with several versions: "keras: 3.1 on a, b; 3.2 on c"."""
    lines = []
    for package in sorted({name for versions in of.values() for name in versions}):
        by: dict[str, list[str]] = {}
        for host, versions in of.items():
            if package in versions:
                by.setdefault(versions[package], []).append(host)
        if len(by) > 1:
            parts = (f"{version} on {', '.join(hosts)}" for version, hosts in sorted(by.items()))
            lines.append(f"{package}: {'; '.join(parts)}")
    return lines


def cordon(store: Store, signatures: Signatures, host: str, why: str, now: dt.datetime) -> None:
    """Have a machine take no job from now on.  Raises StoreError, StallguardError if there is no such machine."""
    known = {*store.names("workers"), *store.names("cordons")}
    if host not in known:
        raise unknown(host, known)
    made = Cordon(schema=orders.SCHEMA, host=host, at=now.isoformat(timespec="seconds"), why=why)
    store.replace(orders.Cordon.place(host=host), orders.encode(made, signatures))


def uncordon(store: Store, signatures: Signatures, host: str) -> None:
    """Let a machine take jobs again.  Raises StoreError, StallguardError if it is not cordoned."""
    data = store.read(orders.Cordon.place(host=host)) if orders.JOB_NAME.fullmatch(host) else None
    found = orders.decode_cordon(data, host, signatures) if data is not None else None
    if found is None or found.is_lifted:
        if host in store.names("workers"):
            raise StallguardError(
                f"{host} is not cordoned", cure="stallguard fleet machines lists all machines", code=NO_SUCH_RUN
            )
        raise unknown(host, {*store.names("cordons"), *store.names("workers")})
    if not found.signer:  # who wrote it is not known
        store.remove(orders.Cordon.place(host=host))
    else:  # kept, so that the incident that it is for does not cause another one
        store.replace(orders.Cordon.place(host=host), orders.encode(replace(found, is_lifted=True), signatures))


def unknown(host: str, known: set[str]) -> StallguardError:
    """Return the error for a machine that has never had a worker."""
    near = nearest(host, known)
    hint = f"did you mean {near}? " if near else ""
    return StallguardError(
        f"there is no machine {host!r} in the fleet",
        cure=f"{hint}stallguard fleet machines lists all machines",
        code=NO_SUCH_RUN,
    )


def checked_host(name: str, member: str) -> str:
    """Return `name` if a machine of this member can have it.  Raises StallguardError (exit code 2)."""
    if orders.JOB_NAME.fullmatch(name):
        if owner(name) == member:
            return name
        raise StallguardError(
            f"{name} does not belong to {member}, whose fleet file this machine has",
            why="else each member could write the card of another one's machine",
            cure=f"--name {member}, or {member}.x; for another member: stallguard fleet invite NAME",
            code=USAGE,
        )
    raise StallguardError(
        f"a machine cannot be named {name!r}",
        why="a name has letters, digits, hyphens, dots and underscores, and begins with a letter or a digit",
        cure=f"try {orders.host_name(name)}",
        code=USAGE,
    )


def summary(resources: Mapping[str, float]) -> str:
    """Return resources in words: "2 slots, 56 GB, metal"."""
    words: list[str] = []
    for name, amount in sorted(resources.items(), key=lambda item: (item[0] not in ("slots", "memory"), item)):
        match name:
            case "slots":
                words.insert(0, f"{amount:g} slot{'s' if amount != 1 else ''}")
            case "memory":
                words.append(f"{amount:g} GB")
            case _:
                words.append(name if amount == 1 else f"{amount:g} {name}")
    return ", ".join(words)


def as_seen(card: WorkerCard, now: dt.datetime) -> WorkerCard:
    """Return a card as a reader sees it: one that was not renewed for SILENT seconds says nothing of its machine."""
    try:
        age = age_of(card, now)
    except (ValueError, TypeError):  # no time, or one without a zone
        return card
    if age < -SILENT and card.state != "gone":
        why = f"its clock is {duration(-age)} ahead of the one here: whether it is silent is not known"
        return msgspec.structs.replace(card, why=why)
    if age <= SILENT or card.state == "gone":
        return card
    why = "its worker has not renewed its card: it is off, asleep or cut off"
    return msgspec.structs.replace(card, state="silent", why=why)


def age_of(card: WorkerCard, now: dt.datetime) -> float:
    """Return the seconds since a card was written, by the scheduler's clock if the card says how far its own is off.

    Negative if the clock here is behind.  Raises ValueError or TypeError for a card without a time.
    """
    return (now - dt.datetime.fromisoformat(card.at)).total_seconds() + (card.clock or 0.0)


def cordons_of(store: Store, hosts: Sequence[str], signatures: Signatures | None) -> list[Cordon]:
    """Return the cordons of these machines; one that is damaged keeps its machine out until a person replaces it."""
    found: list[Cordon] = []
    read = each(lambda host: entry(store, orders.Cordon.place(host=host)), hosts, READERS)
    for host, data in zip(hosts, read, strict=True):
        if data is not None:
            found.append(orders.decode_cordon(data, host, signatures))
    return found


def cards_of(store: Store, hosts: Sequence[str], signatures: Signatures | None) -> list[WorkerCard]:
    """Return the cards of these machines; one that is damaged, or that its member did not sign, is left out."""
    return records_of(store, "workers", hosts, lambda data, host: orders.decode_card(data, host, signatures))


def offered(store: Store, signatures: Signatures | None) -> tuple[list[WorkerCard], list[Cordon]]:
    """Return the cards of all machines as they are seen now, and the cordons that hold.  Raises StoreError."""
    cards, cordons = each(store.names, ("workers", "cordons"))
    now = dt.datetime.now(dt.UTC)
    workers = [as_seen(card, now) for card in cards_of(store, cards, signatures)]
    return workers, [one for one in cordons_of(store, cordons, signatures) if not one.is_lifted]


def records_of(store: Store, folder: str, names: Sequence[str], decode: Callable[[bytes, str], T]) -> list[T]:
    """Return the records of a folder that can be read; one that is damaged, or removed meanwhile, is left out."""
    found: list[T] = []
    names = sorted(names)
    read = each(lambda name: entry(store, f"{folder}/{name}"), names, READERS)
    for name, data in zip(names, read, strict=True):
        try:
            found += [decode(data, name)] if data is not None else []
        except Damaged:
            continue
    return found
