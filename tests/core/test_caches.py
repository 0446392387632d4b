"""A training whose library can keep memory is asked to give it back while memory is short, and not too often."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from stallguard.core import caches
from stallguard.core.actions import Ask
from stallguard.core.events import ProbeConnected
from stallguard.core.limits import PolicyLimits
from stallguard.core.readings import Memory
from tests.simulation.simulation import LIMITS, Simulation

GB = 10**9
LOOK = 5.0  # seconds between two readings
FREE = Memory(total=32 * GB, available=20 * GB, pressure="normal", limit=30 * GB, limit_used=10 * GB, stall_some=0.0)
SHORT = {
    "warn": replace(FREE, pressure="warn"),
    "critical": replace(FREE, pressure="critical"),
    "waits": replace(FREE, stall_some=0.5),
    "limit": replace(FREE, limit_used=29 * GB),
}


def training(library: str = "torch", **limits: object) -> Simulation:
    world = Simulation(replace(LIMITS, **limits), tick=LOOK, batch=1.0)
    world.tell(ProbeConnected, attempt=world.attempt, pid=world.pid, versions={library: "2.0"})
    world.system.memory = FREE
    return world.go_on(60.0)


def asked(world: Simulation) -> list[float]:
    """Return when it was asked."""
    return [at for at, action in world.done if isinstance(action, Ask) and action.command == "caches"]


@pytest.mark.parametrize("kind", SHORT)
def test_it_is_asked_if_memory_is_short(kind: str) -> None:
    world = training()
    assert asked(world) == []
    world.system.memory = SHORT[kind]
    began = world.now
    world.go_on(60.0)

    [at] = asked(world)
    assert began <= at <= began + 30.0


def test_it_is_asked_if_the_machine_swaps() -> None:
    world = training("mlx")
    for second in range(60):
        world.system.memory = replace(FREE, swap_outs=second * 10_000_000)
        world.go_on(1.0)

    assert len(asked(world)) == 1


def test_it_is_not_asked_again_before_some_minutes_have_passed() -> None:
    world = training()
    world.system.memory = SHORT["warn"]
    world.go_on(1500.0)

    times = asked(world)
    assert len(times) == 5
    assert all(later - earlier >= caches.AGAIN for earlier, later in pairwise(times))


@pytest.mark.parametrize(
    ("library", "limits"),
    [
        ("jax", {}),
        ("tensorflow", {}),
        ("torch", {"observe": True}),
        ("torch", {"policy": PolicyLimits(empty_caches=False)}),
    ],
)
def test_who_must_not_be_asked(library: str, limits: dict[str, object]) -> None:
    world = training(library, **limits)
    world.system.memory = SHORT["warn"]

    assert asked(world.go_on(120.0)) == []


def test_it_is_not_asked_while_stall_handling_is_paused() -> None:
    world = training()
    world.ask("mute", "600")
    world.system.memory = SHORT["warn"]

    assert asked(world.go_on(120.0)) == []


def test_memory_that_is_not_known_is_not_short() -> None:
    world = training()
    world.system.memory = Memory()

    assert asked(world.go_on(120.0)) == []


def test_what_came_back_is_summed_up() -> None:
    world = training()
    world.note("caches", "memory is short, and 2 GB came back", bytes=str(2 * GB))
    world.note("caches", "memory is short, and 1 GB came back", bytes=str(GB))
    world.note("caches", "memory is short; what came back is not known")

    assert world.run.totals.given_back == 3 * GB
    assert len(world.facts_of("memory.given_back")) == 3
