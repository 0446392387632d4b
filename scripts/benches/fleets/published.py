"""Reads the raw log of a job and says what must not be in it; shares no code with the product but the store itself."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from stallguard.fleet.store import Store


class Published(NamedTuple):
    """What the log of one job has.  `fenced`: entries of an older holder that stand before no later claim.

    `repeated`: generations that are not beyond the one before; `finished`: ends with exit code 0; `holders`: who had
    it, in order.
    """

    fenced: int
    repeated: int
    finished: int
    after_end: int
    holders: tuple[str, ...]
    generations: int


def entries(store: Store, job: str) -> list[dict[str, Any]]:
    """Return the entries of a job's log, in order.  Raises StoreError."""
    found: list[dict[str, Any]] = []
    while (data := store.read(f"jobs/{job}/log/{len(found) + 1:08}")) is not None:
        found.append(json.loads(data))
    return found


def record(store: Store, key: str) -> dict[str, Any]:
    """Return the content of a signed record, {} if there is none.  Raises StoreError."""
    data = store.read(key)
    found: dict[str, Any] = json.loads(json.loads(data)["content"]) if data is not None else {}
    return found


def read(store: Store, job: str) -> Published:
    """Return what the log of a job has.  Raises StoreError."""
    number = fenced = repeated = finished = after_end = generations = 0
    newest: list[int] = []
    holders: list[str] = []
    for entry in entries(store, job):
        after_end += finished > 0
        if entry["entry"] == "claim":
            fenced += entry["number"] <= number
            number = entry["number"]
            holders.append(entry["holder"]["host"])
            continue
        fenced += entry["number"] != number
        if entry["entry"] == "outcome":
            finished += entry["code"] == 0
            continue
        generations += 1
        position = _position(entry)
        repeated += bool(newest) and position <= newest
        newest = position
    return Published(fenced, repeated, finished, after_end, tuple(holders), generations)


def holder(store: Store, job: str) -> tuple[str, bool]:
    """Return who has a job, "" for none, and whether it has published a generation."""
    host, has_published = "", False
    for entry in entries(store, job):
        if entry["entry"] == "claim":
            host, has_published = entry["holder"]["host"], False
        elif entry["entry"] == "generation":
            has_published = True
        else:
            host = ""
    return host, has_published


def _position(entry: dict[str, Any]) -> list[int]:
    position = entry["position"]
    return [position["fit"], position["epoch"], position["batch"]]
