"""Tries whether a store keeps the promises of the class Store: with several threads, and with a second process.

A promise that is broken is named with what was seen.  What is tried here is on this machine; whether another machine
sees the same depends on the server and on the options of the mount, which docs/fleet.md lists.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stallguard.doctor.facts import FleetFacts, StoreFacts, StorePromise
from stallguard.errors import StallguardError
from stallguard.fleet.machines import member_tls
from stallguard.fleet.store import Store, StoreError, membership, opening
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.opening import open_store

RIVALS = 8  # threads that create one key at once
RACES = 5
SECOND = 60.0  # s for the second process
SLOW = 2.0  # s for one small write, from which a store counts as slow
FOLDER = "probe"
REACH = 3.0  # s for the scheduler of a fleet


def tried(store: Store) -> list[StorePromise]:
    """Return what was found, each promise once; the first error of the store ends it."""
    place = f"{FOLDER}/{os.urandom(6).hex()}"
    found: list[StorePromise] = []
    try:
        for promise, check in PROMISES.items():
            began = time.monotonic()
            wrong = next(check(store, place), "")
            took = time.monotonic() - began
            found.append(StorePromise(promise, not wrong, wrong or f"{took * 1000:.0f} ms"))
    except StoreError as error:
        found.append(StorePromise(promise, False, str(error)))
    finally:
        try:
            store.remove(place)
        except StoreError as error:
            found.append(StorePromise("remove", False, str(error)))
    return found


def _create(store: Store, place: str) -> Iterator[str]:
    """Of several creations of one key one succeeds."""
    if not store.create(f"{place}/one", b"first"):
        yield "a new key was refused"
    if store.create(f"{place}/one", b"second"):
        yield "a second creation of one key succeeded"
    if not store.create(f"{place}/one", b"first"):
        yield "the same creation, repeated, does not find its own data"
    with ThreadPoolExecutor(RIVALS) as pool:
        for race in range(RACES):
            key = f"{place}/race-{race}"
            won = list(pool.map(lambda rival, key=key: store.create(key, b"%d" % rival), range(RIVALS)))
            if sum(won) != 1:
                yield f"of {RIVALS} creations at once {sum(won)} succeeded"
            if store.read(key) != b"%d" % won.index(True):
                yield "what is read is not what the winner wrote"


def _replace(store: Store, place: str) -> Iterator[str]:
    """What is replaced is seen whole, at once."""
    key = f"{place}/replaced"
    for text in (b"a" * 4096, b"b" * 8192, b"c"):
        store.replace(key, text)
        if store.read(key) != text:
            yield "after a replacement something else is read"


def _files(store: Store, place: str) -> Iterator[str]:
    """A file comes back as it was put."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source", Path(folder) / "target"
        source.write_bytes(os.urandom(1 << 20))
        store.put(f"{place}/file", source)
        if not store.get(f"{place}/file", target) or target.read_bytes() != source.read_bytes():
            yield "a file does not come back as it was put"


def _names(store: Store, place: str) -> Iterator[str]:
    """A key is listed once it was written, and no more once it was removed."""
    for key in ("x", "y"):
        store.replace(f"{place}/listed/{key}", b"1")
    if sorted(store.names(f"{place}/listed")) != ["x", "y"]:
        yield f"listed after writing x and y: {', '.join(store.names(f'{place}/listed')) or 'nothing'}"
    store.remove(f"{place}/listed/x")
    if list(store.names(f"{place}/listed")) != ["y"]:
        yield "a removed key is still listed"


def _second(store: Store, place: str) -> Iterator[str]:
    """A second process sees what was written, and cannot create what exists; what it writes is seen here."""
    store.replace(f"{place}/ours", b"from the first")
    ended = subprocess.run(
        [sys.executable, "-m", "stallguard.fleet.machines.trial", store.url, place],
        capture_output=True, text=True, timeout=SECOND, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if ended.returncode:
        yield f"a second process {ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else 'failed'}"
    if store.read(f"{place}/theirs") != b"from the second":
        yield "what a second process wrote is not seen"
    if "theirs" not in store.names(place):
        yield "what a second process wrote is not listed"
    if store.create(f"{place}/two", b"first"):
        yield "what a second process created was created again"


PROMISES: dict[str, Callable[[Store, str], Iterator[str]]] = {
    "exclusive creation": _create,
    "whole replacement": _replace,
    "whole files": _files,
    "listing after a write": _names,
    "a second process": _second,
}


def second_process(url: str, place: str) -> str:
    """Do the part of the second process; return what is wrong, "" if nothing is."""
    store = open_store(url)
    if store.read(f"{place}/ours") != b"from the first":
        return "does not see what the first wrote"
    if store.create(f"{place}/one", b"third"):
        return "created again what exists"
    store.create(f"{place}/two", b"second")
    store.replace(f"{place}/theirs", b"from the second")
    return ""


def store_facts(url: str) -> StoreFacts:
    """Return what was found when the store was tried."""
    try:
        return StoreFacts(url, tuple(tried(open_store(url))))
    except StoreError as error:
        return StoreFacts(url, trouble=str(error))
    except StallguardError as error:
        return StoreFacts(url, trouble=_said(error), cure=error.cure)


def _said(error: StallguardError) -> str:
    return ": ".join(filter(None, (str(error), error.why)))


def fleet_facts(variables: Mapping[str, str]) -> FleetFacts | None:
    """Return what was found when the fleet of this machine was tried; None if it is in none."""
    path = str(membership.path(variables))
    try:
        member = membership.recall(variables)
        if member is None:
            return None
        days = member_tls.days_left(member, time.time())
        reached = member_tls.reach(member, REACH)
    except StallguardError as error:
        return FleetFacts(path, trouble=_said(error), cure=error.cure)
    tried, foreign = _store_of(member)
    return FleetFacts(
        path, member.fleet, days=days, scheduler=member.scheduler, unreachable=reached.trouble,
        refused=reached.lasting, store=tried, foreign=foreign,
    )  # fmt: skip


def _store_of(member: Membership) -> tuple[StoreFacts, str]:
    """Return what was found of a fleet's store, and why it is another's.  What is another's is not written to."""
    try:
        opened = open_store(member.store)
        opening.owner_of(opened)
    except StoreError as error:
        return StoreFacts(member.store, trouble=str(error), cure="mount it, or correct its credentials"), ""
    except StallguardError as error:
        return StoreFacts(member.store, trouble=_said(error), cure=error.cure), ""
    try:
        opening.check_owner(opened, member)
    except StoreError as error:
        return StoreFacts(member.store, trouble=str(error)), ""
    except StallguardError as error:
        return StoreFacts(member.store), _said(error)
    return store_facts(member.store), ""


if __name__ == "__main__":
    sys.exit(second_process(sys.argv[1], sys.argv[2]) or 0)
