"""Slices that would train something else are not made: no smaller batch is tried for such a script, and it is told."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core import policy
from stallguard.core.actions import Announce, Conclude, Launch
from stallguard.core.diagnosis import causes
from stallguard.core.events import Heartbeat
from stallguard.core.history import History
from stallguard.core.limits import Limits, PolicyLimits
from stallguard.core.policy import AttemptHistory, add_attempt
from stallguard.core.verdicts import Finding
from tests.simulation.simulation import LIMITS, Simulation
from tests.simulation.subjects import WholeCore

POLICY = PolicyLimits(on_stall="halve", max_restarts=10, no_progress_limit=10)
HALVING: Limits = msgspec.structs.replace(LIMITS, policy=POLICY)
WHOLE = "Model: batches stay whole, because the loss adds up over the batch"


def in_halves(limits: Limits = HALVING) -> Simulation:
    """Return a run in its second attempt, in which slices are asked for."""
    world = Simulation(limits)
    world.train(60)
    stalled(world)
    return world


def stalled(world: Simulation) -> None:
    attempts = len(factors(world))
    while len(factors(world)) == attempts and not world.actions(Conclude):
        world.silent(1)


def factors(world: Simulation) -> list[int]:
    return [action.slices for action in world.actions(Launch)]


def said(world: Simulation, message: str) -> list[str]:
    return [str(one.facts) for one in world.actions(Announce) if one.message == message]


def test_a_script_whose_batches_stay_whole_is_not_halved_again_in_any_later_attempt() -> None:
    world = in_halves()
    world.note("whole", WHOLE, factor="1")
    for further in (90, 120, 150):
        world.train(further)
        stalled(world)

    assert factors(world)[:2] == [1, 2]
    assert set(factors(world)[2:]) == {1}
    assert "the loss adds up" in said(world, "batch.whole")[0]
    # Once for the first change, and once for this one.
    assert said(world, "training.changed")[-1].count("neither the batch nor the device changes") == 2


def in_a_loop(world: Simulation, source: str = "tape", **facts: int) -> None:
    record = {"attempt": world.run.current.number, "pid": world.run.training.pid, "trains": True, "beats": 3}
    world.feed(Heartbeat(at=world.now, source=source, **record, **facts))


@pytest.mark.parametrize(("source", "facts"), [("tape", {}), ("torch", {"fits": 1})], ids=["a loop", "Lightning"])
def test_a_loop_that_no_slices_reach_is_not_halved_again_and_that_is_said_once(source, facts) -> None:
    world = in_halves()
    in_a_loop(world, source, **facts)
    in_a_loop(world, source, **facts)
    world.train(90)
    stalled(world)

    assert factors(world)[:3] == [1, 2, 1]
    assert len(said(world, "batch.whole")) == 1
    assert "a loop of its own" in said(world, "batch.whole")[0]


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        pytest.param("callbacks", {}, id="a fit of Keras"),
        pytest.param("tape", {"slices": 2}, id="a loop that cuts its batches itself"),
        pytest.param("function", {"fits": 1}, id="a function beside a fit"),
    ],
)
def test_what_trains_in_slices_or_can_is_not_said_to_stay_whole(source: str, facts: dict[str, int]) -> None:
    world = in_halves()
    in_a_loop(world, source, **facts)
    assert not said(world, "batch.whole")
    world.train(90)
    stalled(world)
    assert factors(world)[:3] == [1, 2, 4]


def test_a_loop_that_is_given_its_batch_size_is_made_smaller_by_it() -> None:
    given = msgspec.structs.replace(POLICY, batch_flag="--batch")
    world = in_halves(msgspec.structs.replace(LIMITS, policy=given))
    in_a_loop(world)
    assert not said(world, "batch.whole")


def test_for_want_of_memory_nothing_is_left_to_try_and_that_is_said() -> None:
    past = AttemptHistory()
    for factor, whole in ((1, False), (2, True)):
        findings = (Finding(causes.GPU_OUT_OF_MEMORY, 0.9),)
        past = add_attempt(past, History(), findings, 1 if whole else factor, "default", 0, 60, whole=whole)
        decision = policy.decide(findings, past, PolicyLimits())
        if not whole:
            assert (decision.action, decision.slices) == ("restart", 2)
    assert decision.action == "give_up"
    assert "its batches stay whole" in decision.why


def test_the_next_rung_is_taken_in_the_place_of_the_smaller_batch() -> None:
    findings = (Finding(causes.DEVICE_WAIT, 0.9),)
    past = AttemptHistory()
    for began in (0, 60):
        past = add_attempt(past, History(used_gpu=True), findings, 1, "default", began, 60, whole=True)
    assert policy.decide(findings, past, PolicyLimits()).device == "cpu"
    with_an_option = policy.decide(findings, past, PolicyLimits(batch_flag="-b"))
    assert (with_an_option.slices, with_an_option.device) == (2, "default")


def test_a_model_that_is_cut_after_one_that_is_not_can_be_made_smaller_again() -> None:
    world = in_halves()
    world.note("whole", WHOLE, factor="1")
    world.note("micro", "cut", factor="2")
    world.train(60)
    stalled(world)
    assert factors(world) == [1, 2, 4]


def test_a_model_that_stays_whole_beside_one_that_is_cut_leaves_the_slices_to_that_one() -> None:
    world = in_halves()
    world.note("micro", "cut", factor="2")
    world.note("whole", WHOLE, factor="1")
    world.train(90)
    stalled(world)
    assert factors(world) == [1, 2, 2]


@pytest.mark.parametrize(("on_stall", "next_one"), [("restart", 4), ("halve", 8)])
def test_a_restart_begins_with_the_slices_that_a_lack_of_memory_led_to(on_stall: str, next_one: int) -> None:
    policy_ = msgspec.structs.replace(POLICY, on_stall=on_stall)
    world = Simulation(msgspec.structs.replace(LIMITS, policy=policy_))
    world.train(60)
    world.note("micro", "out of memory in step 61: trained in 4 slices inside the process, caches emptied", factor="4")
    world.train(90)
    assert len(factors(world)) == 1
    stalled(world)
    assert factors(world) == [1, next_one]


class TestSlicesFromTheStart:
    LIMITS = msgspec.structs.replace(HALVING, policy=msgspec.structs.replace(POLICY, microbatches=4))

    def begun(self) -> Simulation:
        return Simulation(WholeCore(self.LIMITS, slices=4), ends_if_asked=False)

    def test_a_smaller_batch_has_twice_as_many(self) -> None:
        world = self.begun()
        world.train(60)
        stalled(world)
        assert factors(world) == [4, 8]

    def test_a_script_that_they_do_not_suit_is_started_again_without_them(self) -> None:
        world = self.begun()
        world.note("whole", WHOLE, factor="1")
        world.train(60)
        stalled(world)
        assert factors(world) == [4, 1]


@pytest.mark.parametrize("kind", ["resume", "batch", "note"])
def test_other_notes_say_nothing_of_slices(kind: str) -> None:
    world = in_halves()
    world.note(kind, "text", factor="7")
    assert (world.run.current.slices, world.run.whole) == (2, "")
