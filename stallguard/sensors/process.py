"""The process sensor: what the child's process tree has used, and where its threads wait.

May not judge: whether 0.00 CPU is a stall is the detector's to say.
"""

from __future__ import annotations

import time

from msgspec.structs import replace

from stallguard.core.readings import Process
from stallguard.host import system
from stallguard.host.clock import Clock
from stallguard.sensors import Target

CENSUS_EVERY = 10.0  # seconds, while all is well: the baseline of healthy wait sites
REMOTE_EVERY = 30.0  # seconds; walks the open files


class ProcessSensor:
    """Reads the tree once a second; four times, with a census of wait sites, while the run is suspected."""

    name = "process"
    period = 1.0
    urgent_period = 0.25
    deadline = 3.0

    def __init__(self, target: Target, clock: Clock) -> None:
        """Watch the tree of `target.root`, whichever that is at the time."""
        self._target, self._clock = target, clock
        self._root: int | None = None
        self._urgent = False

    def hurry(self, on: bool) -> None:
        """Take a census with every reading, or no longer."""
        self._urgent = on

    def read(self) -> Process | None:
        """Return the tree's reading; None while there is no child."""
        root = self._target.root
        if root is None:
            return None
        if root != self._root:
            self._begin(root)
        self._tree.set_shared(self._target.shared)
        reading = self._tree.read(self._target.main)
        self._target.members = self._tree.members()
        census = self._census()
        site = system.main_site(self._target.main or root) if census is not None else None
        return replace(reading, census=census, main_site=site, remote=self._is_remote())

    def _begin(self, root: int) -> None:
        self._root = root
        self._tree = system.Tree(root)
        self._target.shared = 0
        self._counted = self._asked = float("-inf")
        self._remote: bool | None = None

    def _census(self) -> dict[str, int] | None:
        now = self._clock.monotonic()
        wanted = self._urgent or self._target.census_wanted
        if not wanted and now - self._counted < CENSUS_EVERY:
            return None
        self._counted = now
        return system.census(self._target.members, self._target.probe_threads)

    def _is_remote(self) -> bool | None:
        now = self._clock.monotonic()
        if now - self._asked >= REMOTE_EVERY:
            self._asked = now
            self._remote = system.is_remote(self._target.members)
        return self._remote


class SharingSensor:
    """Finds out how much memory the tree's processes share, for the process sensor's footprint.

    Apart from that sensor because the answer needs the processes' memory locks: a training that is stuck in
    the kernel would block it.  Posts nothing itself.
    """

    name = "sharing"
    deadline = 10.0
    PERIOD = 10.0  # seconds
    SHARE = 0.001  # of a core, at the most: page tables of 50 GB take a tenth of a second to walk

    def __init__(self, target: Target) -> None:
        """Keep `target.shared`."""
        self._target = target
        self.period = self.PERIOD

    def read(self) -> None:
        """Measure what more than one member counts as its own."""
        members = self._target.members
        if not members[1:]:
            self._target.shared = 0
            return
        begun = time.thread_time()
        shared = system.overcount(members)
        self.period = max(self.PERIOD, (time.thread_time() - begun) / self.SHARE)
        if shared is not None:
            self._target.shared = shared
