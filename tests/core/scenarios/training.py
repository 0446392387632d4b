"""The training of which every scenario is made."""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Machine, Memory
from tests.simulation.program import GIB, OWN, Rates
from tests.simulation.simulation import Simulation
from tests.simulation.subjects import OneTraining

LIMITS = DetectorLimits()
MEMORY = Memory(total=16 * GIB, swap_outs=0)
MACHINE = Machine(idle=0.8, busiest=())


def training(
    *, linux: bool = False, launched: bool = False, device: Device | None = None,
    memory: Memory = MEMORY, machine: Machine = MACHINE,
) -> Simulation:  # fmt: skip
    """Return a training that begins, in epochs of 1000 batches.  `launched`: its parent is the child."""
    story = Simulation(OneTraining(LIMITS), now=1000.0, tick=1.0, batch=0.25, several=True, pid=7 if launched else 42)
    system = story.system
    system.device, system.memory, system.machine = device, memory, machine
    hello = {"hooks": ("callbacks",), "versions": {"tensorflow": "2.18.1"}, "place": "2-1" * launched}
    record = {"source": "callbacks", "trains": launched, "epochs": 10, "batches": 1000}
    rates = Rates(cores=0.8, faults=20.0, census=OWN if linux else None)
    one = story.start(
        42 *launched, hello=hello, record=record, rates=rates, stuck_rates=None, state="running", polls=True,
    )  # fmt: skip
    one.tree = replace(one.tree, footprint=2 * GIB)
    return story
