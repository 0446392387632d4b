"""Sensors: each reads one part of the world and says what it saw; none judges.

A plug-in adds one through the entry-point group "stallguard.sensors": a callable that takes the Target and
returns a Sensor.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol

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

    def read(self) -> Reading | None:
        """Return what is seen now; None for "nothing to say".  May block: it has a thread of its own."""


@dataclasses.dataclass
class Target:
    """What the sensors look at.  The supervisor replaces fields as it learns, at any time, from any thread."""

    root: int | None = None  # pid of the child
    main: int | None = None  # pid of the process that trains, once the probe has said so
    places: tuple[Path, ...] = ()  # directories where the training writes
    mine: tuple[Path, ...] = ()  # directories where stallguard writes: not the training's doing
    probe_threads: tuple[int, ...] = ()  # the system's numbers; they are not the training's
    members: tuple[int, ...] = ()  # pids of the tree; kept by the process sensor
    shared: int = 0  # bytes of the members' RSS counted more than once; kept by the sharing sensor
    census_wanted: bool = False  # the detector wants to know where the threads wait
