"""Ends that were arranged: an hour of the day, and segments for scripts that leak."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.actions import Ask, Conclude, Launch, Signal
from stallguard.core.events import Heartbeat, ProbeConnected
from stallguard.core.limits import Limits
from stallguard.core.readings import Files
from stallguard.errors import GAVE_UP, STOPPED_ON_TIME
from tests.simulation.simulation import LIMITS, Simulation

SEGMENTS: Limits = msgspec.structs.replace(LIMITS, segment=600.0, cool_down=30.0)


def code_of(world: Simulation) -> int | None:
    ends = [action.code for action in world.actions(Conclude)]
    return ends[0] if ends else None


def its_hour(world: Simulation) -> None:
    world.ask("finish", "it is 07:30")


def test_at_its_hour_the_training_is_asked_to_end_after_its_batch_and_no_signal_is_sent() -> None:
    world = Simulation()
    world.train(60)
    its_hour(world)

    assert world.actions(Ask) != []
    assert world.actions(Signal) == []
    assert code_of(world) == STOPPED_ON_TIME
    assert "run.end_is_due" in world.announced()


def test_one_that_does_not_answer_gets_a_signal_only_after_the_time_of_a_long_batch() -> None:
    world = Simulation(ends_if_asked=False)
    world.train(60)
    its_hour(world)
    began = world.now
    world.train(LIMITS.stop.batch_wait - 5)
    assert world.actions(Signal) == []

    world.train(10)
    assert [at - began >= LIMITS.stop.batch_wait for at, a in world.done if isinstance(a, Signal)] == [True]
    assert code_of(world) == STOPPED_ON_TIME


def test_a_training_that_finishes_just_then_has_finished() -> None:
    world = Simulation(ends_if_asked=False)
    world.train(60)
    its_hour(world)
    world.exit(0)

    assert code_of(world) == 0
    assert "run.finished" in world.announced()
    assert world.run.current.script_code == 0


@pytest.mark.parametrize("code", [STOPPED_ON_TIME, GAVE_UP])
def test_a_script_with_a_code_of_stallguards_own_ends_is_told_from_them(code: int) -> None:
    by_itself = Simulation()
    by_itself.train(60)
    by_itself.exit(code)
    assert (code_of(by_itself), by_itself.run.current.script_code) == (code, code)
    assert "run.failed" in by_itself.announced()
    asked = Simulation()
    asked.train(60)
    its_hour(asked)
    asked.train(60)
    assert (code_of(asked), asked.run.current.script_code) == (STOPPED_ON_TIME, None)
    assert "run.paused" in asked.announced()


def test_a_signal_is_no_exit_code_of_the_script() -> None:
    world = Simulation(msgspec.structs.replace(LIMITS, observe=True))
    world.train(60)
    world.exit(-11)
    assert (code_of(world), world.run.current.script_code) == (139, None)


def test_a_script_that_fails_at_its_hour_has_failed_and_is_judged_as_at_any_other() -> None:
    world = Simulation(ends_if_asked=False)
    world.train(60)
    its_hour(world)
    world.exit(1)

    assert code_of(world) == 1


def test_a_stalled_training_is_ended_at_its_hour_at_once() -> None:
    patient = msgspec.structs.replace(LIMITS, observe=True)
    world = Simulation(patient)
    world.train(60)
    world.silent(300)
    its_hour(world)

    assert world.actions(Signal) != []
    assert code_of(world) == STOPPED_ON_TIME


@pytest.mark.parametrize("stuck", [True, False], ids=["a stall", "a segment"])
def test_an_hour_that_comes_while_an_attempt_is_ended_for_the_next_is_the_end(stuck: bool) -> None:
    limits = LIMITS if stuck else SEGMENTS
    world = Simulation(limits, ends_on_term=False, ends_on_kill=stuck, ends_if_asked=False)
    world.train(60)
    while world.alive and world.run.current.decision is None:
        (world.silent if stuck else world.train)(0.5)
    its_hour(world)
    world.exit(-15)

    assert code_of(world) == STOPPED_ON_TIME
    assert len(world.actions(Launch)) == 1


def test_a_run_between_two_attempts_ends_at_its_hour() -> None:
    world = Simulation(SEGMENTS)
    world.train(605)
    assert not world.alive
    its_hour(world)

    assert code_of(world) == STOPPED_ON_TIME


class Resuming(Simulation):
    """Whose training goes on where the attempt before it ended."""

    def first_record(self) -> dict[str, int]:
        records = [event for event in self.events if isinstance(event, Heartbeat)]
        return {"batch": records[-1].batch} if records else {}


class Alike(Simulation):
    """Whose training begins at the start each time and comes a little further each time, by chance."""

    def first_record(self) -> dict[str, int]:
        return {"batch": 3 * self.attempt}


class Silent(Simulation):
    """Whose loop counts its own batches, and says nothing of where it stands."""

    def first_record(self) -> dict[str, object]:
        return {"epoch": -1, "batch": -1, "batches": -1, "source": "hand"}


SHORT = msgspec.structs.replace(SEGMENTS, segment=60.0, cool_down=1.0)


@pytest.mark.parametrize("kind", [Simulation, Alike, Silent])
def test_a_segment_that_came_no_further_is_the_last_one(kind) -> None:
    world = kind(SHORT)
    world.train(600)

    assert len(world.actions(Launch)) == 2
    [end] = world.actions(Conclude)
    assert end.code == GAVE_UP
    assert "no new progress" in end.why


def test_a_segment_without_a_batch_is_the_last_one() -> None:
    world = Simulation(msgspec.structs.replace(SHORT, segment=2.0), several=True)
    world.tell(ProbeConnected, attempt=1, pid=7, armed=True)
    world.silent(60)

    assert len(world.actions(Launch)) == 1
    assert code_of(world) == GAVE_UP


def test_a_loop_that_writes_checkpoints_of_its_own_may_go_on_in_its_next_segment() -> None:
    world = Silent(SHORT)
    for _ in range(60):
        world.train(10)
        world.sampled(Files(writing=True))

    assert len(world.actions(Launch)) > 5
    assert code_of(world) is None


def test_a_segment_ends_after_its_time_and_the_next_resumes_after_the_pause() -> None:
    world = Resuming(SEGMENTS)
    world.train(3 * 640)

    launches = [(at, action) for at, action in world.done if isinstance(action, Launch)]
    assert [action.resume for _, action in launches] == [False, True, True, True]
    assert launches[1][0] - launches[0][0] >= SEGMENTS.segment + SEGMENTS.cool_down
    assert world.actions(Signal) == []


def test_segments_do_not_use_up_the_restarts() -> None:
    world = Resuming(SHORT)
    world.train(20 * 62)

    assert len(world.actions(Launch)) > LIMITS.policy.max_restarts * 5
    assert code_of(world) is None


def test_a_training_that_finishes_in_a_segment_is_not_started_again() -> None:
    world = Simulation(SEGMENTS)
    world.train(100)
    world.exit(0)

    assert code_of(world) == 0
    assert len(world.actions(Launch)) == 1


def two_at_their_hour() -> Simulation:
    run = Simulation(several=True, ends_if_asked=False)
    run.start(11)
    run.start(12)
    run.go_on(20)
    run.ask("finish", "it is 07:30")
    return run


def signals(run: Simulation) -> list[str]:
    return [action.name for _, action in run.done if isinstance(action, Signal)]


def test_trainings_that_were_saved_and_wait_are_ended_together_at_once() -> None:
    run = two_at_their_hour()
    run.note("stop", "saved", pid=11, saved="1")
    assert signals(run) == [], "the other one still trains its batch"

    run.note("stop", "saved", pid=12, saved="1")
    assert signals(run) == ["TERM"]
    assert run.run.code == STOPPED_ON_TIME


def test_a_script_that_was_not_saved_goes_on_to_its_own_end() -> None:
    run = two_at_their_hour()
    run.note("stop", "saved", pid=11, saved="1")
    run.note("stop", "asked Keras to end this fit", pid=12)
    run.go_on(5)
    assert signals(run) == []


def test_a_launcher_that_fails_because_its_saved_training_was_ended_has_not_failed() -> None:
    run = two_at_their_hour()
    run.note("stop", "saved", pid=11, saved="1")
    run.exit(1)
    assert run.run.code == STOPPED_ON_TIME
