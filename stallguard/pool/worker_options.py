"""What the owner of a machine allows a worker: the options of `stallguard fleet worker`."""

from __future__ import annotations

from typing import NamedTuple

from stallguard.pool.hours import Window


class WorkerOptions(NamedTuple):
    """`host`: the machine's name in the fleet; `slots`: jobs at once; `memory`: bytes for jobs, None: as is sensible.

    `between`: None for each time of day; `mains_only`: take no job on battery.
    """

    host: str
    slots: int = 1
    memory: int | None = None
    between: Window | None = None
    mains_only: bool = False
