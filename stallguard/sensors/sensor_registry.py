"""All sensors of a run: built in, and those of plug-ins.

The process sensor reads the resource use of process trees, and where their threads wait.  Until a training is known it
reads the tree of the child; then the tree below each training, because a busy training beside a stalled one would hide
the stall.  The detector decides whether 0.00 CPU is a stall.

The sensors of the accelerator, the memory and the machine are each one call into host; a period is long if that call is
expensive (on macOS most start a system tool).  The sensor of files is in file_activity.

Must not judge, and must not run the sensors; the sampler does.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from stallguard import plugins
from stallguard.core.readings import Device, Machine, Memory, Process, Reading
from stallguard.host import system
from stallguard.host.clock import Clock
from stallguard.sensors import PLUGINS, SensedTraining, Sensor, Target
from stallguard.sensors.file_activity import FilesSensor

Trouble = Callable[[str, Exception], None]

CENSUS_EVERY = 10.0  # seconds, without suspicion: the baseline of healthy wait sites
QUOTA_EVERY = 5.0  # seconds; reads the files of each level of control groups
REMOTE_EVERY = 30.0  # seconds; walks the open files
MEMBERS_EVERY = 2.0  # seconds between two searches for all processes of the run, which other sensors use
SLACK = 0.2  # seconds by which a reading can be early


class DeviceSensor:
    """The GPU: its utilisation, and whether this run uses it; per training, if there are several."""

    name = "device"
    period = 10.0
    urgent_period = 2.0
    deadline = 3.0  # a registry read that takes longer means a hanging driver

    def __init__(self, target: Target) -> None:
        """Measure the GPU time of the tree of `target`."""
        self._target = target
        self._gpus: dict[int, system.Gpu] = {}  # each keeps the counters of its own processes

    def read(self) -> list[Device]:
        """Return the device's reading, or one for each of several trainings; none if it cannot be read."""
        trees = self._target.trees
        wanted = trees if len(trees) > 1 else {0: self._target.members}
        self._gpus = {pid: self._gpus.get(pid) or system.Gpu() for pid in wanted}
        family = self._target.members
        seen = [(pid, self._gpus[pid].read(members, family)) for pid, members in wanted.items()]
        return [replace(reading, pid=pid) for pid, reading in seen if reading is not None]


@dataclasses.dataclass
class HostSensor:
    """A sensor that is one call into host; times in seconds."""

    name: str
    period: float
    urgent_period: float
    deadline: float
    read: Callable[[], Reading]


def sensors(target: Target, clock: Clock, trouble: Trouble) -> list[Sensor]:
    """Return all sensors; `trouble` is called for a plug-in that cannot be loaded or created."""
    watch = system.MachineWatch()

    def memory() -> Memory:
        return system.memory(target.main or target.root)

    def machine() -> Machine:
        # Neither the tree nor stallguard is among the other processes.
        return watch.read(clock.monotonic(), {*target.members, os.getpid()}, clock.asleep())

    made: list[Sensor] = [
        ProcessSensor(target, clock), SharingSensor(target), DeviceSensor(target),
        HostSensor("memory", 5.0, 2.0, 4.0, memory), HostSensor("machine", 15.0, 5.0, 8.0, machine),
        FilesSensor(target, clock),
    ]  # fmt: skip
    for name, factory in plugins.load(PLUGINS, trouble).items():
        try:
            made.append(factory(target))
        except Exception as error:  # noqa: BLE001 - foreign code must not end the run
            trouble(name, error)
    return made


class ProcessSensor:
    """Reads trees once a second; four times, with a census, while a training is suspected; seldom in a long stall."""

    name = "process"
    period = 1.0
    urgent_period = 0.25
    deadline = 3.0

    def __init__(self, target: Target, clock: Clock) -> None:
        """Watch the tree of the present `target.root`."""
        self._target, self._clock = target, clock
        self._root: int | None = None
        self._whole: _WatchedTree | None = None
        self._each: dict[int, _WatchedTree] = {}
        self._searched = float("-inf")
        self._urgent = False

    def hurry(self, on: bool) -> None:
        """Take a census with every reading, or no longer."""
        self._urgent = on

    def read(self) -> Process | list[Process] | None:
        """Return the reading of the child's tree, or of the tree below each training; None while there is no child."""
        target, now = self._target, self._clock.monotonic()
        if target.root is None:
            return None
        if target.root != self._root or self._whole is None:
            self._root, self._whole, self._each = target.root, _WatchedTree(target.root), {}
            self._searched, target.shared = float("-inf"), {}
        trainings = target.trainings
        if not trainings:
            self._each, target.trees = {}, {}
            census = self._urgent or target.census_wanted
            wish = SensedTraining(target.main or target.root, target.probe_threads, census=census)
            reading = self._whole.read(wish, target.shared.get(target.root, 0), now)
            target.members = self._whole.members()
            return reading
        pids = [training.pid for training in trainings]
        self._each = {pid: self._each.get(pid) or _WatchedTree(pid) for pid in pids}
        found = [
            replace(watch.read(one, target.shared.get(one.pid, 0), now), pid=one.pid)
            for one in trainings
            if (watch := self._each[one.pid]).is_due(one, now)
        ]
        target.trees = {pid: watch.members() for pid, watch in self._each.items()}
        if now - self._searched >= MEMBERS_EVERY:
            self._searched = now
            only = pids == [self._whole.root]  # the usual case: the child trains
            target.members = target.trees[self._whole.root] if only else self._whole.search()
        return found


class _WatchedTree:
    """One tree, and when its costlier facts were last read."""

    def __init__(self, root: int) -> None:
        self.root = root
        self._tree = system.Tree(root)
        self._read = self._counted = self._asked = float("-inf")
        self._remote: bool | None = None
        self._limited = float("-inf")
        self._throttled: float | None = None

    def is_due(self, wish: SensedTraining, now: float) -> bool:
        """Return whether it is to be read now."""
        return now - self._read >= wish.period - min(SLACK, wish.period / 2)

    def read(self, wish: SensedTraining, shared: int, now: float) -> Process:
        """Return the tree's reading.  `wish.pid`: the process whose state and main thread are read."""
        self._read = now
        self._tree.set_shared(shared)
        reading = self._tree.read(wish.pid)
        census = site = None
        if wish.census or now - self._counted >= CENSUS_EVERY:
            self._counted = now
            census = system.census(self.members(), wish.probe_threads)
            site = system.main_site(wish.pid) if census is not None else None
        if now - self._limited >= QUOTA_EVERY:
            self._limited, self._throttled = now, system.throttled(wish.pid)
        if now - self._asked >= REMOTE_EVERY:
            self._asked = now
            self._remote = system.is_remote(self.members())
        return replace(reading, census=census, main_site=site, remote=self._remote, throttled=self._throttled)

    def search(self) -> tuple[int, ...]:
        """Return the members of the tree as they are now."""
        self._tree.read()
        return self.members()

    def members(self) -> tuple[int, ...]:
        """Return the members of the last reading."""
        members: tuple[int, ...] = self._tree.members()
        return members


class SharingSensor:
    """Finds out how much memory the processes of each tree share, for the process sensor's footprint.

    Separate from that sensor because it needs the processes' memory locks: a training that is stuck in
    the kernel would block it.  It posts nothing itself.
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
        """Measure the memory that more than one member of a tree counts."""
        begun = time.thread_time()
        trees = self._target.trees or {self._target.root or 0: self._target.members}
        found: dict[int, int] = {}
        for root, members in trees.items():
            shared = system.overcount(members) if members[1:] else 0
            found[root] = self._target.shared.get(root, 0) if shared is None else int(shared)
        self.period = max(self.PERIOD, (time.thread_time() - begun) / self.SHARE)
        self._target.shared = found
