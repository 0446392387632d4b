"""A process that somebody stopped (SIGSTOP, Ctrl-Z, a debugger) is theirs: it is said, and never acted upon."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core import ledger
from stallguard.core.actions import Announce, Signal
from stallguard.core.detection import detector
from stallguard.core.events import Matched
from stallguard.core.limits import DetectorLimits, Limits
from stallguard.core.time_spent import LOST, total
from tests.simulation.alone import Alone
from tests.simulation.simulation import LIMITS, Simulation


def stopped(world: Simulation, seconds: float, state: str = "stopped") -> Simulation:
    """Let the process be in `state`, and idle."""
    return world.silent(seconds, state=state, pulses=False, tick=1.0)


def ordered(order: str) -> Limits:
    return msgspec.structs.replace(LIMITS, policy=msgspec.structs.replace(LIMITS.policy, causes=(order,)))


@pytest.mark.costly
@pytest.mark.parametrize("seconds", [150, 3600])
def test_it_is_left_alone_while_it_is_stopped_and_when_it_goes_on(seconds):
    world = Simulation()
    world.train(60)
    stopped(world, seconds)
    assert "stall.deferred" not in world.announced(), "nothing is announced that will not be done"
    assert world.announced()[-1] == "stall.left_alone"

    stopped(world, 3, state="sleeping")
    assert world.announced()[-1] == "training.continued"
    world.train(60)

    assert world.actions(Signal) == []
    times = ledger.spent(world.run.ledger, world.now)
    assert total(times, LOST) == 0
    assert times.stopped_by_user == pytest.approx(seconds, abs=5)
    [stall] = [one for one in world.actions(Announce) if one.message == "training.stalled"]
    assert stall.facts["what"] == "the process was stopped (SIGSTOP)"


def test_that_it_goes_on_while_the_evidence_is_collected_is_announced_as_that():
    world = Simulation(evidence=False)  # it takes a while
    world.train(60)
    stopped(world, 6)
    stopped(world, 3, state="sleeping")
    world.train(1)
    world.stacks()
    world.train(5)

    [ends] = [one for one in world.actions(Announce) if one.message in ("training.continued", "training.recovered")]
    assert ends.message == "training.continued"
    assert ends.facts["gap"].endswith(" s")


def test_a_fault_of_the_gpu_is_no_reason_to_end_it_meanwhile():
    world = Simulation()
    world.train(60)
    stopped(world, 20)
    world.feed(Matched(at=world.now, signature="iogpu_ignored", family="GPU_FAULT_STICKY", line="x"))
    stopped(world, 600)

    assert world.actions(Signal) == []


def test_what_was_ordered_for_it_is_done():
    world = Simulation(ordered("stopped=restart"))
    world.train(60)
    stopped(world, 60)

    assert [signal.name for signal in world.actions(Signal)][:2] == ["TERM", "CONT"]


def test_a_stall_after_it_went_on_is_one_of_its_own():
    world = Simulation()
    world.train(60)
    stopped(world, 600)
    resumed = world.now
    stopped(world, 120, state="sleeping")

    assert world.announced().count("training.stalled") == 2
    ended = next(at for at, action in world.done if isinstance(action, Signal))
    assert ended - resumed >= 6, "its silence begins when it goes on"
    assert 6 <= total(ledger.spent(world.run.ledger, world.now), LOST) <= world.now - resumed, (
        "the time for which it was stopped is not lost by a stall"
    )


def test_the_pause_teaches_nothing_though_its_first_batch_is_known_before_its_state():
    scene, plain = Alone().train(60), Alone().train(60)
    scene.silent(150, state="stopped", pulses=False)
    scene.progress(phase="step", beats=scene.heartbeat.beats + 1, longest=150.0, longest_phase="step")
    scene.train(5)

    learned, normal = scene.detector_state.rows["STEP"], plain.detector_state.rows["STEP"]
    assert (learned.longest, learned.deadlock) == (normal.longest, normal.deadlock)
    assert scene.silent_until("stalled") <= 11


def test_a_reading_that_fails_is_no_sign_that_it_goes_on():
    scene = Alone().train(60)
    scene.silent_until("stopped", state="stopped", pulses=False)
    scene.sample(state=None)

    assert scene.detector_state.judgement.step == "stopped"
    assert detector.act_at(scene.detector_state, scene.subject.detector_limits) is None


def test_the_silence_before_it_was_stopped_does_not_count_as_stopped():
    world = Simulation(msgspec.structs.replace(LIMITS, detector=DetectorLimits()))
    world.train(60)
    world.silent(20, "compile")
    stopped(world, 3)
    assert "training.stalled" not in world.announced()
    stopped(world, 4)
    assert world.announced().count("training.stalled") == 1
