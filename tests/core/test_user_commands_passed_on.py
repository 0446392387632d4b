"""A signal that is the training's own: sent on as it came; what follows is as it would be without stallguard."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.core import fallback, lifecycle
from stallguard.core.actions import Conclude, Launch, Signal
from stallguard.core.events import Exited, Ticked, UserCommand
from stallguard.core.policy import NOTHING, PastAttempt
from stallguard.core.run import with_attempt
from stallguard.core.verdicts import Decision
from tests.simulation.simulation import Simulation

USR1 = 10


def trained() -> Simulation:
    world = Simulation()
    world.train(60)
    return world


def send(world: Simulation, number: int = USR1) -> None:
    world.tell(UserCommand, verb="signal", argument="SIGUSR1", number=number)


def test_it_reaches_the_training_alone_and_once():
    world = trained()
    send(world)
    world.train(30)

    assert world.actions(Signal) == [Signal(attempt=1, name="USR1", number=USR1)]
    assert world.run.current.decision is None, "guarded as before"
    assert "interrupt.unused" not in world.announced()


@pytest.mark.parametrize(("code", "ours"), [(-USR1, 128 + USR1), (128 + USR1, 128 + USR1), (3, 3), (0, 0)])
def test_an_end_that_answers_it_is_the_runs_end(code: int, ours: int):
    world = trained()
    send(world)
    world.exit(code)

    assert [end.code for end in world.actions(Conclude)] == [ours]
    assert world.actions(Conclude)[0].why.startswith("signalled: SIGUSR1")
    assert len(world.actions(Launch)) == 1


@pytest.mark.costly
def test_an_end_by_it_long_afterwards_is_the_runs_end_too():
    world = trained()
    send(world)
    world.train(900)
    world.exit(-USR1)

    assert [end.code for end in world.actions(Conclude)] == [128 + USR1]


@pytest.mark.costly
def test_a_crash_long_afterwards_is_a_crash():
    world = trained()
    send(world)
    world.train(900)
    world.exit(-11)

    assert len(world.actions(Launch)) == 2


def test_a_program_whose_batches_nobody_counts_is_guarded_again_in_the_end():
    world = Simulation()
    send(world)
    world.silent(700)
    world.exit(-11)

    assert len(world.actions(Launch)) == 2


def test_an_interrupt_after_it_is_a_first_one():
    world = trained()
    send(world)
    world.ask("interrupt")

    assert [one.name for one in world.actions(Signal)] == ["USR1", "INT"]


def test_a_stop_after_it_ends_the_training():
    world = trained()
    send(world)
    world.ask("stop")
    world.exit(-15)

    assert [one.name for one in world.actions(Signal)] == ["USR1", "TERM"]
    assert [end.code for end in world.actions(Conclude)] == [143]


def between_two_attempts(code: int) -> Simulation:
    """Return a run that waits for its second attempt, with a pause that a test can use."""
    world = trained()
    past = world.run.past
    attempt = PastAttempt("native-crash", 0.5, "step", 1, "default", 0.0, world.now, NOTHING, code=code)
    ended = with_attempt(world.run, decision=Decision(action="restart", why="again"))
    known = replace(past, attempts=(*past.attempts, attempt))
    world.run = replace(ended, state=lifecycle.BACKOFF, past=known, deadline=world.now + 60)
    return world


def test_between_two_attempts_it_is_said_that_none_can_handle_it():
    world = between_two_attempts(-11)
    send(world)

    assert "signal.unused" in world.announced()
    assert world.actions(Signal) == []
    assert world.run.state == lifecycle.BACKOFF


def test_a_batch_system_that_signals_all_processes_ends_the_run_also_if_the_end_was_seen_first():
    world = between_two_attempts(-USR1)
    send(world)

    assert [end.code for end in world.actions(Conclude)] == [128 + USR1]


def test_a_training_that_the_user_ended_by_it_directly_is_not_started_again():
    world = trained()
    world.tell(Exited, attempt=1, code=-USR1, signal="SIGUSR1")

    assert [end.code for end in world.actions(Conclude)] == [128 + USR1]
    assert "ended by SIGUSR1" in str(world.run.current.findings)


def test_a_core_that_failed_still_passes_it_on():
    run = trained().run
    run, _ = fallback.begin(run, Ticked(at=run.now), "RuntimeError: ours")
    _, actions = fallback.follow(run, UserCommand(at=run.now, verb="signal", argument="SIGXCPU", number=24))

    assert actions == [Signal(attempt=1, name="XCPU", number=24)]
