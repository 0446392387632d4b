"""Which faults come in which order: a pure function of a seed.

Must not play them; `play` does.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of fault.  `lasts`: the least and the most seconds after which it is taken back; 0: it is not."""

    name: str
    title: str
    lasts: tuple[float, float] = (0.0, 0.0)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill", "kill -9 of the training"),
        Kind("supervisor", "kill -9 of stallguard"),
        Kind("deadlock", "deadlock in a callback"),
        Kind("blocked", "blocked function of the pipeline"),
        Kind("stop", "SIGSTOP, later SIGCONT", (2.0, 12.0)),
        Kind("memory", "out of memory"),
        Kind("full", "full disk", (4.0, 20.0)),
        Kind("read-only", "read-only disk", (4.0, 20.0)),
        Kind("sockets", "removed sockets"),
        Kind("checkpoint", "newest checkpoint damaged, then kill -9"),
    )
}


class Fault(NamedTuple):
    """A fault to come.  `lasts`: seconds; `share`: 0..1, chooses between the variants of a kind."""

    kind: str
    lasts: float
    share: float


def plan(seed: int, count: int, kinds: Sequence[str] = tuple(KINDS)) -> list[Fault]:
    """Return `count` faults.  Each kind comes once before any comes again, in an order drawn each time."""
    dice, faults = random.Random(seed), list[Fault]()
    while len(faults) < count:
        for kind in dice.sample(list(kinds), len(kinds)):
            faults.append(Fault(kind, dice.uniform(*KINDS[kind].lasts), dice.random()))
    return faults[:count]
