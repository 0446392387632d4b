"""Why a run of several processes ended: the training that was killed, or that failed, not what had started it."""

from __future__ import annotations

import pytest

from stallguard.core.actions import Launch
from tests.simulation.simulation import Simulation


def ends(world: Simulation, code: int) -> str:
    """End the child, and return the cause that is told for it; "" if it is not restarted."""
    before = len(world.when(Launch))
    world.exit(code)
    world.go_on(30)
    return world.run.past.attempts[-1].cause if len(world.when(Launch)) > before else ""


def test_a_training_that_was_killed_is_restarted_though_its_launcher_says_that_it_failed() -> None:
    world = Simulation(several=True)
    world.start(7, batch=0.0), world.start(11)
    world.go_on(60)
    world.leave(11, "vanished")

    assert ends(world, 1) == "killed"


def test_the_one_that_was_killed_is_the_reason_and_not_the_ones_that_its_launcher_then_ended() -> None:
    world = Simulation(several=True)
    world.start(11), world.start(12)
    world.go_on(60)
    world.leave(11, "vanished")
    world.leave(12)

    assert ends(world, 1) == "killed"


def test_an_error_in_a_training_is_the_reason_though_its_launcher_kills_the_others() -> None:
    world = Simulation(several=True)
    world.start(11), world.start(12)
    world.go_on(60)
    world.leave(11, "failed")
    world.leave(12, "vanished")

    assert ends(world, 1) == ""
    assert world.run.current.findings[0].cause == "script-error"


@pytest.mark.parametrize("code", [0, 1])
def test_a_child_that_ends_itself_at_once_was_not_killed(code: int) -> None:
    """os._exit() says no goodbye; the launcher of one that vanished may take it for no failure."""
    world = Simulation(several=True)
    world.start(7)
    world.go_on(60)
    world.leave(7, "vanished")

    assert ends(world, code) == ""
