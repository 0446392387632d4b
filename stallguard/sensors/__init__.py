"""Sensors: each reads one part of the world and says what it saw; none judges.

A plug-in adds one through the entry-point group "stallguard.sensors": a callable that takes the Target and
returns a Sensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from stallguard.core.readings import Reading

PLUGINS = "stallguard.sensors"


class Sensor(Protocol):
    """What a sensor must have.  `period`: seconds between two readings.

    It may also have: `urgent_period` (seconds, while the run is suspected), `deadline` (seconds that a
    reading may take before it is told to be blocked; 5 by default), `hurry(on)` (told when urgency begins and
    ends) and `close()`.
    """

    name: str
    period: float

    def read(self) -> Reading | Sequence[Reading] | None:
        """Return what is seen now, or several readings; None for "nothing to say".

        May block: it has a thread of its own.
        """


class Training(NamedTuple):
    """A training whose process tree is read by itself.  `close`: four times a second; `census`: with wait sites."""

    pid: int
    probe_threads: tuple[int, ...] = ()
    close: bool = False
    census: bool = False


class Target(msgspec.Struct):
    """What the sensors look at.  The supervisor replaces fields as it learns, at any time, from any thread."""

    root: int | None = None  # pid of the child
    main: int | None = None  # pid of the training in focus, or of the process that may become one
    # Once there are any, each is read by itself, and the whole tree is not.
    trainings: tuple[Training, ...] = ()
    places: tuple[Path, ...] = ()  # directories where the training writes
    mine: tuple[Path, ...] = ()  # directories where stallguard writes: not the training's doing
    probe_threads: tuple[int, ...] = ()  # the system's numbers; they are not the training's
    members: tuple[int, ...] = ()  # pids of the tree; kept by the process sensor
    trees: dict[int, tuple[int, ...]] = {}  # the same below each training
    # Bytes of RSS counted more than once in the tree below each process; kept by the sharing sensor.
    shared: dict[int, int] = {}
    census_wanted: bool = False  # the detector wants to know where the threads wait
