"""When what makes a training slow is reported: in the journal each time, and to the user once it is sure."""

from __future__ import annotations

from stallguard.core import bottleneck_kinds
from stallguard.core.actions import Ask, SlowedBy
from stallguard.core.events import Profiled
from stallguard.core.profile import FEEDER, TRAINING, Profile, Spot
from tests.simulation.simulation import Simulation

SCRIPT = "/home/ada/train.py"


def profile(seconds: float, *spots: Spot) -> Profile:
    phases: dict[str, float] = {}
    for one in spots:
        if one.role == TRAINING:
            phases[one.phase] = phases.get(one.phase, 0.0) + one.seconds
    return Profile(seconds, int(2 * seconds), phases, 0.0, (), spots, beats=int(10 * seconds))


def fit(seconds: float) -> Spot:
    """Return the time of the training's thread in TensorFlow."""
    calls = "keras.src.trainers.trainer.fit"
    return Spot(TRAINING, "step", seconds, SCRIPT, 30, "<module>", calls=calls, does="tf_wait")


def starved(seconds: float) -> Profile:
    """Return a profile of a training that waits for a generator nearly all the time."""
    makes = Spot(FEEDER, "step", 0.95 * seconds, SCRIPT, 6, "generate", does="generator", feeds=True)
    return profile(seconds, fit(seconds), makes)


def healthy(seconds: float) -> Profile:
    return profile(seconds, fit(seconds))


def profiled(run: Simulation, profile: Profile, pid: int = 7) -> None:
    run.tell(Profiled, attempt=run.attempt, pid=pid, profile=profile)


def trained(*pids: int) -> Simulation:
    """Return a run whose programs train for 20 seconds."""
    run = Simulation(several=True)
    for pid in pids:
        run.start(pid, record={"source": "callbacks", "fits": 1, "trains": True})
    return run.go_on(20)


def test_a_bottleneck_is_announced_once_two_profiles_in_a_row_show_it() -> None:
    run = trained(7)
    profiled(run, starved(20.0))
    assert run.facts_of("training.bottleneck") == []

    run.go_on(20)
    profiled(run, starved(40.0))
    run.go_on(20)
    profiled(run, starved(60.0))

    assert len(run.facts_of("training.bottleneck")) == 1
    assert [one.bottlenecks[0].kind for one in run.actions(SlowedBy)] == [bottleneck_kinds.INPUT] * 3


def test_a_bottleneck_of_one_training_does_not_confirm_that_of_another() -> None:
    run = trained(7, 8)
    for pid in (7, 8):
        profiled(run, starved(20.0), pid)

    assert run.facts_of("training.bottleneck") == []


def test_the_journal_says_that_a_training_is_not_slowed_any_more() -> None:
    run = trained(7)
    profiled(run, starved(20.0))
    run.go_on(200)
    profiled(run, healthy(220.0))
    run.go_on(20)
    profiled(run, healthy(240.0))

    assert [len(one.bottlenecks) for one in run.actions(SlowedBy)] == [1, 0]


def test_nothing_is_announced_of_a_run_that_ends() -> None:
    run = trained(7)
    profiled(run, starved(20.0))
    run.exit(0)
    profiled(run, starved(40.0))

    assert run.facts_of("training.bottleneck") == []


def test_the_probe_is_told_of_a_stall_once_so_that_its_time_is_in_no_profile_of_slowness() -> None:
    run = Simulation()
    run.start(record={"source": "callbacks", "fits": 1, "trains": True})
    run.train(30)
    run.silent(60)
    assert [one.command for one in run.actions(Ask)] == ["stalled"]
