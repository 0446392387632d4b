"""SIGKILL waits for a checkpoint that is being written: as long as it advances, and not for ever."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.actions import Signal
from stallguard.core.events import Ticked
from stallguard.core.readings import Files
from tests.simulation.simulation import LIMITS, Simulation

GRACE, WAIT = LIMITS.stop.grace, 20.0
PATIENT = msgspec.structs.replace(LIMITS, stop=msgspec.structs.replace(LIMITS.stop, saving_wait=WAIT))


@pytest.fixture
def asked() -> Simulation:
    """A training that was asked to end, and does not for SIGTERM alone."""
    world = Simulation(PATIENT, ends_on_term=False)
    world.train(60)
    world.ask("stop")
    return world


def let_pass(world: Simulation, seconds: float, *, file_grows: bool = False, saves: bool = False) -> None:
    began, end = world.now, world.now + seconds
    while world.now < end and world.alive:
        world.now += 0.5
        world.sampled(Files(writing=file_grows, path="a.keras"))
        if saves and world.alive:
            world.progress(phase="checkpoint", phase_at=began)
        world.tell(Ticked)


def killed_after(world: Simulation) -> float | None:
    """Return the seconds from SIGTERM to SIGKILL."""
    times = {action.name: at for at, action in world.done if isinstance(action, Signal)}
    return times["KILL"] - times["TERM"] if "KILL" in times else None


@pytest.mark.parametrize("how", ["file_grows", "saves"])
def test_what_is_still_being_saved_after_the_grace_is_saved_first(asked: Simulation, how: str) -> None:
    let_pass(asked, GRACE + 8, **{how: True})
    assert killed_after(asked) is None


def test_sigkill_comes_soon_after_the_save(asked: Simulation) -> None:
    let_pass(asked, GRACE + 8, file_grows=True)
    let_pass(asked, 5)
    assert killed_after(asked) == pytest.approx(GRACE + 8, abs=2)


@pytest.mark.parametrize("how", ["file_grows", "saves"])
def test_a_save_without_end_does_not_hold_it_back_for_ever(asked: Simulation, how: str) -> None:
    let_pass(asked, 120, **{how: True})
    assert GRACE <= (killed_after(asked) or 0) <= GRACE + WAIT + 1


def test_the_next_attempt_has_its_own_wait() -> None:
    world = Simulation(PATIENT, ends_on_term=False)
    for _ in range(2):
        world.train(30)
        world.done.clear()
        world.ask("restart")
        let_pass(world, GRACE + WAIT / 2, file_grows=True)
        assert killed_after(world) is None
        let_pass(world, 10)
        assert killed_after(world) is not None
        world.train(30)
