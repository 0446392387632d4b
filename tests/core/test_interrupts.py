"""An interrupt that the training outlives: it is guarded again, and the promise of a second one holds."""

from __future__ import annotations

from stallguard.core.actions import Conclude, Launch, Signal
from stallguard.core.events import Asked
from stallguard.errors import STOPPED_ON_TIME
from tests.core.world import World


def interrupt(world: World) -> None:
    world.tell(Asked(at=world.now, verb="interrupt"))


def signals(world: World) -> list[str]:
    return [action.name for action in world.actions(Signal) if isinstance(action, Signal)]


def test_a_training_that_handles_an_interrupt_and_goes_on_is_judged_as_before():
    world = World().start()
    world.train(60)
    interrupt(world)
    world.train(30)
    assert "outlived" in world.told()
    world.train(120, stuck=True)

    assert signals(world)[:2] == ["INT", "TERM"]
    assert len(world.actions(Launch)) == 2


def test_one_that_hangs_soon_after_it_went_on_is_judged_too():
    world = World().start()
    world.train(60)
    interrupt(world)
    world.train(3)
    world.train(120, stuck=True)

    assert signals(world)[:2] == ["INT", "TERM"]


def test_while_no_batch_follows_the_training_may_end_in_its_own_time():
    world = World().start()
    world.train(60)
    interrupt(world)
    world.train(600, stuck=True)
    assert signals(world) == ["INT"]
    world.exit(0)

    assert [end.code for end in world.actions(Conclude) if isinstance(end, Conclude)] == [0]


def test_a_second_interrupt_within_the_time_that_was_told_ends_it_at_once():
    world = World().start()
    world.train(60)
    interrupt(world)
    world.train(8)
    interrupt(world)

    assert signals(world) == ["INT", "KILL"]


def test_long_after_it_went_on_an_interrupt_is_a_first_one():
    world = World().start()
    world.train(60)
    interrupt(world)
    world.train(600)
    interrupt(world)

    assert signals(world) == ["INT", "INT"]


def test_one_that_ends_by_the_interrupt_after_its_epoch_is_not_started_again():
    world = World().start()
    world.train(60)
    interrupt(world)
    world.train(60)
    world.exit(130)

    assert len(world.actions(Launch)) == 1
    assert [end.code for end in world.actions(Conclude) if isinstance(end, Conclude)] == [130]


def test_the_hour_of_a_run_that_outlives_an_interrupt_still_comes():
    world = World().start()
    world.train(60)
    interrupt(world)
    world.train(2)
    world.tell(Asked(at=world.now, verb="finish", argument="it is 07:30"))

    assert [end.code for end in world.actions(Conclude) if isinstance(end, Conclude)] == [STOPPED_ON_TIME]
