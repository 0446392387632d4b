"""All sensors of a run: built in, and those of plug-ins.

Must not run them; the sampler does.
"""

from __future__ import annotations

from collections.abc import Callable

from stallguard import plugins
from stallguard.host.clock import Clock
from stallguard.sensors import PLUGINS, Sensor, Target
from stallguard.sensors.file_activity import FilesSensor
from stallguard.sensors.machine_sensors import DeviceSensor, MachineSensor, MemorySensor
from stallguard.sensors.process_usage import ProcessSensor, SharingSensor

Trouble = Callable[[str, Exception], None]


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
