"""Pairs waiting jobs with free machines, as a function of values.

Dask binds a task to a machine when it gets it, so a task of low priority that is bound to a free machine runs before
one of high priority that is bound to a busy one.  Therefore the order is decided here, and Dask gets a task only for
room that is free now.

The jobs are taken in their order: the highest priority first; of these what had begun before; then the first that was
submitted.  Each gets the machine that it fills best.  For a job that has room nowhere, the machine that lacks least is
kept: no later job gets room there, else small jobs would hold up a large one for ever.  Of several jobs that need the
same on the same machines only the first has a machine kept.

So at each start it holds that no job before it in the order could have had the room that it takes.

This module must not read a clock or the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

LEAST = 1e-6  # of a resource: amounts are GB with one decimal, or counts


class Waiting(NamedTuple):
    """A job that can start now.  `place`: in the order of submission; `addresses`: of machines that can take it."""

    job: str
    priority: int
    has_begun: bool
    place: int
    needs: Mapping[str, float]
    addresses: tuple[str, ...]


def match(waiting: Iterable[Waiting], rooms: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str]]:
    """Return pairs of a job and the address of the machine that is to start it, in the order of the jobs.

    `rooms`: what each machine has left of each resource.
    """
    left = {address: dict(room) for address, room in rooms.items()}
    kept: set[str] = set()  # machines for a job that waits for more room there
    without: set[tuple[tuple[tuple[str, float], ...], tuple[str, ...]]] = set()  # what has no room now
    pairs = []

    def rest(address: str, needs: Mapping[str, float]) -> tuple[int, float]:
        """Kinds of resources that a job does not need, then what it leaves: one with a GPU is left to who needs it."""
        room = left[address]
        others = sum(amount > LEAST for name, amount in room.items() if needs.get(name, 0.0) <= 0)
        return others, sum(room.values()) - sum(needs.values())

    def lack(address: str, needs: Mapping[str, float]) -> float:
        """The share of its needs that a machine lacks, summed over the resources."""
        room = left[address]
        return sum(
            max(0.0, amount - room.get(name, 0.0)) / amount for name, amount in needs.items() if amount
        )

    for one in sorted(waiting, key=order):
        kind = (tuple(sorted(one.needs.items())), one.addresses)
        if kind in without:
            continue
        able = [address for address in one.addresses if address in left and address not in kept]
        free = [address for address in able if has_room(left[address], one.needs)]
        if free:
            address = min(free, key=partial(rest, needs=one.needs))
            for name, amount in one.needs.items():
                left[address][name] = left[address].get(name, 0.0) - amount
            pairs.append((one.job, address))
        else:
            without.add(kind)
            if able:
                kept.add(min(able, key=partial(lack, needs=one.needs)))
    return pairs


def order(one: Waiting) -> tuple[int, bool, int]:
    """Return the key by which jobs are sorted."""
    return (-one.priority, not one.has_begun, one.place)


def has_room(room: Mapping[str, float], needs: Mapping[str, float]) -> bool:
    """Return whether a machine has enough left of each resource."""
    return all(room.get(name, 0.0) >= amount - LEAST for name, amount in needs.items())
