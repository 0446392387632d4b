"""A thread that stays in a few busy lines, or waits for a GPU that is busy without end, in each phase with a pace."""

from __future__ import annotations

import dataclasses

import pytest

from stallguard.core.detection import detector
from stallguard.core.limits import Limits
from stallguard.core.readings import Device
from stallguard.report.narrative import sentence
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import OWN, SILENCES, Rates
from tests.simulation.simulation import Simulation

PACED = ["step", "between", "epoch end", "validation", "checkpoint"]
WORKING = Device(utilisation=0.95, moved=True, power=300.0, used_by_run=True)
HUNG = {"device_power": 120.0, "device_utilisation": 1.0}


def paced(phase: str, device: Device | None = None) -> Alone:
    """A training that has been in `phase` often enough to know its pace, and is in it again."""
    scene = Alone().train(60)
    scene.system.device = device
    for _ in range(40):
        ended(scene.enter(phase).silent(0.5, "spin"), phase, 0.5).train(1)
    scene.enter(phase)
    return ended(scene, phase, 0.0) if phase == "validation" else scene


def ended(scene: Alone, phase: str, seconds: float) -> Alone:
    """The phase, or a batch of a validation, is over after so many seconds."""
    then = phase if phase == "validation" else "step"
    return scene.progress(phase=then, longest=seconds, longest_phase=phase, checks=scene.heartbeat.checks + 1)


def acted_upon(scene: Alone, **more: object) -> tuple[float, float, float]:
    """Return the seconds until the gap is noticed, until it is a stall, and until it is acted upon."""
    began = scene.now
    noticed = scene.silent_until("suspect", **more)
    judged = noticed + scene.silent_until("stalled", **more)
    due = detector.act_at(scene.detector_state, LIMITS)
    return noticed, judged, float("inf") if due is None else due - began


@pytest.mark.parametrize("phase", PACED)
def test_a_loop_in_a_few_lines_is_a_stall_after_two_minutes_in_each_phase_with_a_pace(phase: str) -> None:
    noticed, judged, acted = acted_upon(paced(phase), how="spin", frame=("place", 0))

    assert noticed == pytest.approx(60, abs=4)
    assert judged == pytest.approx(120, abs=4)
    assert acted == pytest.approx(120, abs=4)


@pytest.mark.parametrize("phase", PACED)
def test_a_call_in_c_that_keeps_the_interpreter_and_the_processor_is_one_place(phase: str) -> None:
    assert acted_upon(paced(phase), how="spin", pulses=False)[1] == pytest.approx(120, abs=6)


@pytest.mark.parametrize(
    ("how", "frame"),
    [("spin", ("", -1)), ("compile", ("place", 0)), ("upload", ("place", 0)), ("compile", ("library", 0))],
)
def test_an_evaluation_that_moves_between_lines_or_touches_memory_or_files_has_its_time(
    how: str, frame: tuple[str, int]
) -> None:
    scene = paced("between").silent(290, how, frame=frame)

    assert "stalled" not in scene.steps


def by_turns(scene: Alone, most: float) -> float:
    """Let it be idle and busy by turns, without work; return the seconds until a stall, `most` if there is none."""
    began, turn = scene.now, 0
    while scene.now - began < most and scene.detector_state.judgement.step != "stalled":
        turn += 1
        scene.silent(8, "spin" if turn % 2 else "sleeper", frame=("sleep", 0))
    return scene.now - began


@pytest.mark.parametrize(("phase", "due"), [("step", 120), ("between", 900)])
def test_a_loop_that_asks_and_sleeps_by_turns_is_a_stall_once_each_of_the_two_would_be(phase: str, due: float) -> None:
    assert by_turns(paced(phase), due + 60) == pytest.approx(due, abs=10)


def test_steps_that_have_been_idle_and_busy_by_turns_for_as_long_have_their_time() -> None:
    scene = paced("step")
    for _ in range(3):
        by_turns(scene, 112)
        scene.progress(phase="step", longest=112.0, longest_phase="step").train(5)

    assert by_turns(scene, 152) > 150


@pytest.mark.costly
def test_a_callback_that_sleeps_is_told_after_a_minute_though_it_has_a_quarter_of_an_hour() -> None:
    scene = paced("between")
    noticed, judged, acted = acted_upon(scene, how="sleeper", frame=("sleep", 0), within=1000)

    assert noticed == pytest.approx(60, abs=4)
    assert judged == acted == pytest.approx(900, abs=4)


def test_of_a_callback_that_sleeps_the_log_says_so_and_what_would_be_a_stall() -> None:
    world = Simulation(Limits()).train(60)
    for _ in range(3):
        world.enter("between").enter("step").train(1)
    world.enter("between").silent(100, "sleeper", frame=("sleep", 0))

    [facts] = world.facts_of("training.suspected")
    words = sentence("training.suspected", facts)
    assert words.startswith("possible stall: no progress for 1 min between two steps; ")
    assert words.endswith("; the script sleeps; 15 min would be a stall")


def test_a_callback_that_sleeps_as_long_as_it_did_before_is_no_news() -> None:
    scene = ended(paced("between").silent(200, "sleeper", frame=("sleep", 0)), "between", 200.0).train(30)

    assert scene.enter("between").silent_until("suspect", "sleeper", frame=("sleep", 0)) >= 300


@pytest.mark.parametrize("phase", ["importing", "idle", "named", "tracing"])
def test_a_loop_where_no_pace_is_known_has_its_time(phase: str) -> None:
    assert "stalled" not in Alone().train(60).enter(phase).silent(290, "spin", frame=("place", 0)).steps


def test_a_long_loop_that_ended_by_itself_has_more_time_afterwards() -> None:
    scene = ended(paced("between").silent(100, "spin", frame=("place", 0)), "between", 100.0).train(30)

    assert scene.enter("between").silent_until("stalled", "spin", frame=("place", 0)) > 290


@pytest.mark.parametrize(("phase", "longer"), [("between", True), ("epoch end", True), ("step", False)])
def test_a_loop_outside_of_a_step_that_was_ended_once_has_more_time_in_the_next_attempt(
    phase: str, longer: bool
) -> None:
    scene = paced(phase)
    scene.silent_until("stalled", "spin", frame=("place", 0))
    learned = detector.export(scene.detector_state)
    again = Alone(learned=learned).train(60).enter(phase)

    took = again.silent_until("stalled", "spin", frame=("place", 0))
    assert (296 <= took <= 604) if longer else took == pytest.approx(120, abs=4)


@pytest.mark.costly
@pytest.mark.parametrize("phase", PACED)
@pytest.mark.parametrize("cores", [0.0, 1.0])
@pytest.mark.parametrize("power", [120.0, None])
@pytest.mark.parametrize("wait", ["library", "call"])
def test_a_gpu_that_is_busy_without_end_is_noticed_in_30_s_and_acted_upon_after_2_min(
    phase: str, cores: float, power: float | None, wait: str
) -> None:
    scene = paced(phase, Device(utilisation=0.95, moved=True, power=power and 300.0, used_by_run=True))
    scene.be(device_power=power, device_utilisation=1.0)
    scene.training.stuck_rates = Rates(cores=cores, census=OWN)
    noticed, judged, acted = acted_upon(scene, frame=(wait, 0))

    assert noticed <= 30
    assert judged <= 60
    assert acted <= 120
    assert scene.detector_state.judgement.evidence == "busy device"


def test_a_gpu_whose_power_changes_computes() -> None:
    scene = paced("between", WORKING).be(**HUNG)
    scene.training.stuck_rates = SILENCES["spin"]
    for second in range(280):
        scene.be(device_power=200.0 + 60.0 * (second // 4 % 2)).silent(1, frame=("library", 0))

    assert "stalled" not in scene.steps


@pytest.mark.parametrize(
    ("how", "frame"),
    [("compile", ("library", 0)), ("spin", ("", -1)), ("spin", ("place", 0)), ("spin", ("io", 0))],
    ids=["compiles", "moves", "moves within a line", "waits for another process of the training"],
)
def test_what_is_not_one_wait_for_the_gpu_is_judged_as_before(how: str, frame: tuple[str, int]) -> None:
    assert "stalled" not in paced("between", WORKING).be(**HUNG).silent(290, how, frame=frame).steps


@pytest.mark.costly
def test_another_programs_gpu_hides_no_stall() -> None:
    """On a Mac, without a census: an idle wait is one, though a browser draws."""
    device = Device(utilisation=0.4, moved=None, used_by_run=False)
    for phase, within in (("step", 32), ("importing", 1900), ("finishing", 320)):
        scene = Alone().train(60)
        scene.system.device = device
        scene.training.stuck_rates = dataclasses.replace(SILENCES["no census"])
        assert scene.enter(phase).silent_until("stalled", within=2000) <= within, phase
