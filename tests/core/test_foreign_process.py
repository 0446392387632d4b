"""A process that stallguard did not start is announced, and never acted upon, whatever the limits say."""

from __future__ import annotations

import pytest

from stallguard.core.actions import Announce, Ask, Conclude, Launch, Signal
from stallguard.core.events import Exited
from stallguard.errors import GAVE_UP
from tests.simulation.simulation import LIMITS, Simulation


class Foreign(Simulation):
    """A run whose process was there before."""

    def tell(self, kind, /, **facts):
        more = {"foreign": True} if kind.__name__ == "Launched" else {}
        return super().tell(kind, **facts, **more)


def messages(world):
    return [action.message for action in world.actions(Announce)]


def acted(world):
    return list(world.actions(Signal)) + [one for one in world.actions(Ask) if one.command != "stalled"]


def test_a_stall_is_announced_and_nothing_is_done():
    world = Foreign(LIMITS)
    world.train(60)
    world.silent(1000)

    assert "training.stalled" in messages(world)
    assert "stall.observed" in messages(world)
    assert acted(world) == []
    assert len(world.actions(Launch)) == 1


@pytest.mark.parametrize("verb", ["stop", "interrupt", "finish", "signal"])
def test_an_order_to_end_it_ends_the_watch(verb):
    world = Foreign(LIMITS)
    world.train(60)
    world.ask(verb)

    assert acted(world) == []
    assert [one.code for one in world.actions(Conclude)] == [0]


def test_a_training_that_is_gone_without_a_last_word_is_a_crash():
    world = Foreign(LIMITS)
    world.train(60)
    world.feed(Exited(at=world.now, attempt=1, code=0, known=False))

    assert "attempt.crashed" in messages(world)
    assert [one.code for one in world.actions(Conclude)] == [GAVE_UP]
    assert "killed, or it crashed" in world.actions(Conclude)[0].why
    assert "finished" not in world.run.current.findings[0].cause


def test_one_that_said_goodbye_has_ended():
    world = Foreign(LIMITS, several=True)
    world.start(7, record={"trains": True})
    world.train(60)
    world.leave(7)
    world.feed(Exited(at=world.now, attempt=1, code=0, known=False))

    assert "attempt.crashed" not in messages(world)
    assert [one.code for one in world.actions(Conclude)] == [0]
