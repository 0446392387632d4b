"""An interrupt that the training outlives: it is guarded again, and the promise of a second one holds."""

from __future__ import annotations

import pytest

from stallguard.core.actions import Conclude, Launch, Signal
from stallguard.errors import STOPPED_ON_TIME
from tests.simulation.simulation import Simulation


def interrupt(world: Simulation) -> None:
    world.ask("interrupt")


def signals(world: Simulation) -> list[str]:
    return [action.name for action in world.actions(Signal)]


def test_a_training_that_handles_an_interrupt_and_goes_on_is_judged_as_before():
    world = Simulation()
    world.train(60)
    interrupt(world)
    world.train(30)
    assert "interrupt.unused" in world.announced()
    world.silent(120)

    assert signals(world)[:2] == ["INT", "TERM"]
    assert len(world.actions(Launch)) == 2


def test_one_that_hangs_soon_after_it_went_on_is_judged_too():
    world = Simulation()
    world.train(60)
    interrupt(world)
    world.train(3)
    world.silent(120)

    assert signals(world)[:2] == ["INT", "TERM"]


def test_while_no_batch_follows_the_training_may_end_in_its_own_time():
    world = Simulation()
    world.train(60)
    interrupt(world)
    world.silent(600)
    assert signals(world) == ["INT"]
    world.exit(0)

    assert [end.code for end in world.actions(Conclude)] == [0]


def test_a_second_interrupt_within_the_time_that_was_reported_ends_it_at_once():
    world = Simulation()
    world.train(60)
    interrupt(world)
    world.train(8)
    interrupt(world)

    assert signals(world) == ["INT", "KILL"]


@pytest.mark.costly
def test_long_after_it_went_on_an_interrupt_is_a_first_one():
    world = Simulation()
    world.train(60)
    interrupt(world)
    world.train(600)
    interrupt(world)

    assert signals(world) == ["INT", "INT"]


def test_one_that_ends_by_the_interrupt_after_its_epoch_is_not_started_again():
    world = Simulation()
    world.train(60)
    interrupt(world)
    world.train(60)
    world.exit(130)

    assert len(world.actions(Launch)) == 1
    assert [end.code for end in world.actions(Conclude)] == [130]


def test_the_hour_of_a_run_that_outlives_an_interrupt_still_comes():
    world = Simulation()
    world.train(60)
    interrupt(world)
    world.train(2)
    world.ask("finish", "it is 07:30")

    assert [end.code for end in world.actions(Conclude)] == [STOPPED_ON_TIME]
