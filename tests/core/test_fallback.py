"""When our own judgement failed: the user's wishes reach the training, and its end is the run's."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core import fallback, lifecycle
from stallguard.core.actions import Action, Conclude, Signal
from stallguard.core.events import Event, Exited, Failed, Launched, Ticked, UserCommand
from stallguard.core.run import Run, with_attempt
from stallguard.core.verdicts import Decision
from tests.simulation.simulation import Simulation


def trained() -> Run:
    world = Simulation()
    world.train(30)
    return world.run


def done(run: Run, *events: Event) -> list[Action]:
    run, actions = fallback.begin(run, Ticked(at=run.now), "RuntimeError: ours")
    for event in events:
        run, more = fallback.follow(run, event)
        actions = [*actions, *more]
    return actions[1:]  # that it was told is the first


@pytest.mark.parametrize(("code", "ours"), [(0, 0), (3, 3), (-9, 137)])
def test_the_childs_own_end_is_the_runs_end(code: int, ours: int) -> None:
    run = trained()

    assert done(run, Exited(at=run.now, attempt=1, code=code)) == [Conclude(code=ours)]


def test_an_attempt_that_was_ended_to_be_started_again_leaves_a_failure_of_ours() -> None:
    run = with_attempt(trained(), decision=Decision(action="restart", why="stalled"))

    assert done(run, Exited(at=run.now, attempt=1, code=-15)) == [Conclude(code=125, why="stallguard itself failed")]


@pytest.mark.parametrize(("verb", "name"), [("interrupt", "INT"), ("stop", "TERM"), ("finish", "TERM")])
def test_a_first_order_is_answered_and_a_second_ends_the_training(verb: str, name: str) -> None:
    run = trained()
    ask = UserCommand(at=run.now, verb=verb)

    assert done(run, ask, ask) == [Signal(attempt=1, name=name), Signal(attempt=1, name="KILL")]
    assert done(run, UserCommand(at=run.now, verb="mute")) == []


def test_without_a_child_the_run_is_over() -> None:
    run = msgspec.structs.replace(trained(), state=lifecycle.BACKOFF)

    assert done(run) == [Conclude(code=125, why="stallguard itself failed")]


def test_a_child_that_had_just_been_started_is_followed() -> None:
    run = msgspec.structs.replace(trained(), state=lifecycle.BACKOFF)

    run, actions = fallback.begin(run, Launched(at=run.now, attempt=2, pid=9), "RuntimeError: ours")
    assert (run.state, run.current.number, len(actions)) == (lifecycle.UNGUARDED, 2, 1)
    assert fallback.follow(run, Exited(at=run.now, attempt=1, code=0))[1] == [], "of the attempt before"
    assert fallback.follow(run, Exited(at=run.now, attempt=2, code=0))[1] == [Conclude(code=0)]


def test_a_child_that_could_not_be_started_ends_the_run_with_its_reason() -> None:
    run = msgspec.structs.replace(trained(), state=lifecycle.BACKOFF)

    _, actions = fallback.begin(run, Failed(at=run.now, attempt=2, why="gone", code=127), "RuntimeError: ours")
    assert actions[1:] == [Conclude(code=127, why="gone")]


@pytest.mark.parametrize(("verb", "vital"), [("interrupt", True), ("stop", True), ("mute", False), ("dump", False)])
def test_only_a_wish_that_the_training_end_may_not_be_passed_over(verb: str, vital: bool) -> None:
    assert fallback.is_vital(UserCommand(at=0.0, verb=verb)) is vital
    assert fallback.is_vital(Ticked(at=0.0)) is False
    assert fallback.is_vital(Exited(at=0.0, attempt=1, code=0)) is True
