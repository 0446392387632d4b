"""All sensors of a run: built in, and those of plug-ins.

Here are the sensors of the accelerator, the memory and the machine: each is one call into host; a period is long if
that call is expensive (on macOS most start a system tool).

Must not run them; the sampler does.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec.structs import replace

from stallguard import plugins
from stallguard.core.readings import Device, Machine, Memory
from stallguard.host import system
from stallguard.host.clock import Clock
from stallguard.sensors import PLUGINS, Sensor, Target
from stallguard.sensors.file_activity import FilesSensor
from stallguard.sensors.process_usage import ProcessSensor, SharingSensor

Trouble = Callable[[str, Exception], None]


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
        seen = [(pid, self._gpus[pid].read(members)) for pid, members in wanted.items()]
        return [replace(reading, pid=pid) for pid, reading in seen if reading is not None]


class MemorySensor:
    """Memory of the machine, and the limits of the training process."""

    name = "memory"
    period = 5.0
    urgent_period = 2.0
    deadline = 4.0

    def __init__(self, target: Target) -> None:
        """Read the limits of the process that trains."""
        self._target = target

    def read(self) -> Memory:
        """Return the memory's reading."""
        reading: Memory = system.memory(self._target.main or self._target.root)
        return reading


class MachineSensor:
    """Idle cores, other busy processes, power, heat, sleep."""

    name = "machine"
    period = 15.0
    urgent_period = 5.0
    deadline = 8.0

    def __init__(self, target: Target, clock: Clock) -> None:
        """Count neither the tree of `target` nor stallguard among the others."""
        self._target, self._clock = target, clock
        self._watch = system.MachineWatch()

    def read(self) -> Machine:
        """Return the machine's reading."""
        ours = {*self._target.members, os.getpid()}
        reading: Machine = self._watch.read(self._clock.monotonic(), ours, self._clock.asleep())
        return reading


def sensors(target: Target, clock: Clock, trouble: Trouble) -> list[Sensor]:
    """Return all sensors; `trouble` is called for a plug-in that cannot be loaded or created."""
    made: list[Sensor] = [
        ProcessSensor(target, clock), SharingSensor(target), DeviceSensor(target), MemorySensor(target),
        MachineSensor(target, clock), FilesSensor(target, clock),
    ]  # fmt: skip
    for name, factory in plugins.load(PLUGINS, trouble).items():
        try:
            made.append(factory(target))
        except Exception as error:  # noqa: BLE001 - foreign code must not end the run
            trouble(name, error)
    return made
