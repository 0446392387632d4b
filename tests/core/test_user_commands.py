"""`stallguard restart` starts the training anew at once, or says why it does not; it never ends the run."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core import lifecycle, user_commands
from stallguard.core.actions import Conclude, Launch
from stallguard.core.limits import Limits
from tests.simulation.simulation import LIMITS, Simulation

SLOWLY: Limits = msgspec.structs.replace(LIMITS, policy=msgspec.structs.replace(LIMITS.policy, backoff=600.0))


def ask(world: Simulation, verb: str) -> str:
    why = user_commands.refuses(world.run, verb)
    world.ask(verb)
    return why


def between_two_attempts() -> Simulation:
    """Return a run that waits for ten minutes, because its attempts ended soon."""
    world = Simulation(SLOWLY)
    for _ in range(2):
        world.train(10)
        world.exit(-11)
        world.train(1)
    assert world.run.state == lifecycle.BACKOFF
    return world


def test_between_two_attempts_the_next_one_starts_at_once():
    world = between_two_attempts()
    before = len(world.actions(Launch))

    assert ask(world, "restart") == ""
    assert len(world.actions(Launch)) == before + 1
    assert world.alive
    assert world.actions(Conclude) == []


def test_a_stop_between_two_attempts_ends_the_run():
    world = between_two_attempts()
    ask(world, "stop")

    assert [end.code for end in world.actions(Conclude)] == [130]


@pytest.mark.parametrize("verb", ["stop", "finish"])
def test_a_run_that_is_being_ended_says_no(verb):
    world = Simulation(ends_on_term=False, ends_on_kill=False, ends_if_asked=False)
    world.train(10)
    ask(world, verb)

    assert "nothing follows" in ask(world, "restart")
    world.exit(-15)
    assert len(world.actions(Launch)) == 1


def test_one_that_is_being_ended_for_the_next_attempt_is_being_started_anew():
    world = Simulation(ends_on_term=False)
    world.train(10)
    assert ask(world, "restart") == ""
    assert ask(world, "restart") == ""
    world.train(20)

    assert len(world.actions(Launch)) == 2


def test_a_run_without_an_attempt_says_no_whatever_it_is_asked():
    world = Simulation()
    for state in (lifecycle.NEW, *lifecycle.ENDED):
        run = msgspec.structs.replace(world.run, state=state)
        assert user_commands.refuses(run, "restart") != ""
        assert user_commands.refuses(run, "dump") == ""
