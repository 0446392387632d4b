"""Sensors: each reads one part of the process or machine; none judges.

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
    """The interface of a sensor.  `period`: seconds between two readings.

    It can also have: `urgent_period` (seconds, while a stall is suspected), `deadline` (seconds after which a
    reading is reported as blocked; 5 by default), `hurry(on)` (called when urgency begins and ends) and
    `close()`.
    """

    name: str
    period: float

    def read(self) -> Reading | Sequence[Reading] | None:
        """Return one reading or several; None if there is none.

        It can block: each sensor has its own thread.
        """


class SensedTraining(NamedTuple):
    """A training whose tree is read separately.  `period`: seconds between two readings; `census`: with wait sites."""

    pid: int
    probe_threads: tuple[int, ...] = ()
    period: float = 1.0
    census: bool = False


class Target(msgspec.Struct):
    """The target of the sensors.  The supervisor replaces fields at any time, from any thread."""

    root: int | None = None  # pid of the child
    main: int | None = None  # pid of the training in focus, or of the process that can become one
    # If there are any, each tree is read separately, and the whole tree is not.
    trainings: tuple[SensedTraining, ...] = ()
    places: tuple[Path, ...] = ()  # directories where the training writes
    mine: tuple[Path, ...] = ()  # directories where stallguard writes, which say nothing about the training
    probe_threads: tuple[int, ...] = ()  # thread ids of the system; these are not the training's
    members: tuple[int, ...] = ()  # pids of the tree; maintained by the process sensor
    trees: dict[int, tuple[int, ...]] = {}  # the same below each training
    # Bytes of RSS counted more than once in the tree below each process; maintained by the sharing sensor.
    shared: dict[int, int] = {}
    census_wanted: bool = False  # the detector needs the wait sites of the threads
