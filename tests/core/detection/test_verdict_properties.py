"""After a verdict: when it is acted upon and when it is withdrawn; what devices, workers and the pulse add to it."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.detection import detector
from stallguard.core.events import Sampled, SensorBlocked
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Process
from stallguard.sensors.sensor_registry import DeviceSensor
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import OWN

# ---- after a verdict


def test_progress_ends_a_stall_and_three_events_more_end_the_doubt():
    scene = Alone().train(60)
    scene.silent_until("stalled")

    scene.train(1)
    assert scene.detector_state.judgement.step == "recovering"
    scene.train(3)
    assert scene.detector_state.judgement.step == "healthy"
    assert scene.steps == ["healthy", "suspect", "stalled", "recovering", "healthy"]


def test_one_stall_is_reported_once():
    scene = Alone().train(60).silent(600)

    assert scene.steps.count("stalled") == 1


def test_a_refuted_alarm_makes_the_next_one_twice_as_slow():
    scene = Alone().train(60)
    first = scene.silent_until("stalled", "socket")
    scene.train(30)

    assert scene.silent_until("stalled", "socket") >= 1.9 * first


def test_a_busy_moment_restarts_the_idle_clock():
    scene = Alone().train(60).silent(8).silent(2, "spin")

    assert scene.silent_until("stalled") >= 8


# ---- when to act


def test_a_certain_verdict_is_acted_upon_at_once():
    scene = Alone().train(60)
    scene.silent_until("stalled")

    assert detector.act_at(scene.detector_state, LIMITS) == scene.now


def test_an_external_wait_gets_two_minutes_of_silence_in_all():
    scene = Alone().train(60)
    silent_since = scene.now
    scene.silent_until("stalled", "no census")

    assert detector.act_at(scene.detector_state, LIMITS) == pytest.approx(silent_since + LIMITS.act_after, abs=1.5)


def test_a_tree_that_went_to_work_again_is_not_acted_upon():
    scene = Alone().train(60)
    scene.silent_until("stalled", "socket")

    scene.silent(60, "compile")
    assert scene.detector_state.judgement.step == "stalled"
    assert detector.act_at(scene.detector_state, LIMITS) is None
    scene.silent(40, "socket")
    assert detector.act_at(scene.detector_state, LIMITS) is not None


def test_a_verdict_keeps_the_evidence_that_it_was_made_from():
    scene = Alone().train(60)
    scene.silent_until("stalled")

    scene.silent(3, "spin")
    assert (scene.detector_state.judgement.evidence, scene.detector_state.judgement.threshold) == ("deadlock", 10.0)


def test_a_dead_worker_makes_a_verdict_certain():
    scene = Alone().train(60)
    scene.now += 0.25
    scene.sample(workers=1)
    scene.training.tree = msgspec.structs.replace(scene.tree, workers=0)
    scene.silent_until("stalled", "sleeper")

    assert scene.detector_state.judgement.certain


def test_patience_scales_notice_verdict_and_act_together():
    limits = DetectorLimits(patience=2.0)
    scene = Alone(limits).train(60)
    silent_since = scene.now

    assert scene.silent_until("suspect", "no census") == pytest.approx(30, abs=1)
    scene.silent_until("stalled", "no census")
    assert scene.now - silent_since == pytest.approx(60, abs=1)
    assert detector.act_at(scene.detector_state, limits) == pytest.approx(silent_since + 2 * LIMITS.act_after, abs=3)


def test_a_stopped_or_healthy_process_is_never_acted_upon():
    scene = Alone().train(60)
    assert detector.act_at(scene.detector_state, LIMITS) is None
    scene.silent_until("stopped", state="stopped")
    assert detector.act_at(scene.detector_state, LIMITS) is None


# ---- devices and workers


def test_a_gpu_that_moves_is_no_idle_wait():
    scene = Alone()
    for _ in range(60):
        scene.sampled(Device(moved=True, used_by_run=True, power=100.0))
        scene.train(1)
    for _ in range(110):
        scene.sampled(Device(moved=True, used_by_run=True, power=100.0))
        scene.silent(1.0, "no census")

    assert "stalled" not in scene.steps
    assert scene.detector_state.judgement.evidence == "working"


def test_a_gpu_that_is_busy_at_a_third_of_its_power_spins():
    scene = Alone()
    for _ in range(60):
        scene.sampled(Device(utilisation=1.0, used_by_run=True, power=250.0))
        scene.train(1)
    for _ in range(125):
        scene.sampled(Device(utilisation=1.0, used_by_run=True, power=45.0))
        scene.silent(1.0, "no census")

    assert scene.detector_state.judgement.step == "stalled"
    assert scene.detector_state.judgement.evidence == "spin"


def test_a_gpu_that_cannot_be_read_makes_idleness_no_evidence():
    scene = Alone()
    scene.sampled(Device(used_by_run=True))
    scene.train(60)
    scene.sampled(Device(used_by_run=True))

    assert scene.silent_until("stalled") >= 290


def test_beats_that_a_dead_gpu_does_not_follow_are_a_stall():
    scene = Alone()
    scene.training.polls = True
    for _ in range(60):
        scene.sampled(Device(moved=True, used_by_run=True))
        scene.train(1)
    scene.training.polls = False
    for _ in range(100):
        scene.sampled(Device(moved=False, used_by_run=True))
        scene.train(1)

    assert scene.detector_state.judgement.step == "stalled"
    assert scene.detector_state.judgement.row == "DEVICE"


def test_a_poll_thread_that_ended_is_no_stall_while_the_gpu_moves():
    scene = Alone()
    for second in range(400):
        scene.sampled(Device(moved=True, used_by_run=True))
        scene.training.polls = second < 60
        scene.train(1)

    assert scene.steps == ["healthy"]


# ---- the pulse, and being blind


def test_the_pulse_tells_a_held_interpreter_from_a_free_one():
    free, held = Alone().train(60).silent(6), Alone().train(60).silent(6, pulses=False)

    assert free.detector_state.judgement.pulse is True
    assert held.detector_state.judgement.pulse is False
    assert Alone().train(60).detector_state.judgement.pulse is None


def test_after_a_pause_of_our_own_the_pulse_is_unknown_until_a_record_comes():
    scene = Alone().train(60).silent(6)
    scene.now += 20.0  # stallguard died, and was started again
    scene.silent(4, pulses=False)
    assert scene.detector_state.judgement.pulse is None
    scene.pulse()
    scene.silent(1, pulses=False)
    assert scene.detector_state.judgement.pulse is True
    scene.silent(4, pulses=False)
    assert scene.detector_state.judgement.pulse is False, "it came once, and no more"


def test_an_interpreter_that_was_held_before_our_pause_is_known_to_be_held_after_the_grace():
    scene = Alone().train(60).silent(6, "spin", pulses=False)
    scene.now += 20.0
    scene.silent(LIMITS.grace + 1, "spin", pulses=False)
    assert scene.detector_state.judgement.pulse is False


@pytest.mark.costly
def test_an_idle_wait_whose_limit_is_that_of_any_gap_is_not_called_busy():
    scene = Alone().train(60).enter("between").silent(1, "spin")

    scene.silent_until("stalled", "socket")
    assert scene.detector_state.judgement.evidence == "external wait"


def test_silence_without_any_reading_is_judged_late_and_as_unknown():
    scene = Alone().train(60)
    scene.feed(SensorBlocked(at=scene.now, sensor="process", seconds=5))

    scene.wait(280)
    assert "stalled" not in scene.steps
    scene.wait(40)
    assert scene.detector_state.judgement.step == "stalled"
    assert scene.detector_state.judgement.evidence == "unknown"


def test_a_program_without_a_probe_is_reported_after_half_an_hour_of_idleness_and_never_acted_upon():
    detector_state, now, cpu = detector.start(), 0.0, 0.0
    steps = []
    for second in range(7200):
        now, cpu = now + 1.0, cpu + (1.0 if second < 3600 or second > 7000 else 0.0)
        detector_state = detector.observe(
            detector_state, Sampled(at=now, reading=Process(state="sleeping", cpu=cpu, io=0)), LIMITS
        )
        steps.append(detector_state.judgement.step)
        if detector_state.judgement.step == "stalled":
            assert detector.act_at(detector_state, LIMITS) is None
    assert steps.index("stalled") == pytest.approx(3600 + 1800, abs=5)
    assert steps[-1] == "healthy"


# ---- what it asks for


def test_it_wants_dense_readings_with_a_census_only_inside_a_silence():
    scene = Alone().train(60)

    assert detector.wanted(scene.detector_state, LIMITS).period == 1.0
    scene.silent(4)
    assert detector.wanted(scene.detector_state, LIMITS) == detector.Wanted(0.25, True, closely=True)


def test_the_device_is_read_closely_until_a_stall_is_acted_upon():
    """Its slow readings are too old to be used: then a verdict on a busy device would no longer hold."""
    assert 2 * DeviceSensor.urgent_period <= LIMITS.stale_device < DeviceSensor.period
    scene = Alone().train(60)
    assert not detector.wanted(scene.detector_state, LIMITS).closely
    scene.silent(2)
    while scene.now < scene.heartbeat.progress_at + 5 * LIMITS.act_after:
        assert detector.wanted(scene.detector_state, LIMITS).closely
        scene.silent(1)
    scene.silent(3600)
    assert not detector.wanted(scene.detector_state, LIMITS).closely


def test_a_stall_that_is_only_observed_is_read_less_the_longer_it_lasts():
    scene = Alone().train(60)
    scene.silent_until("stalled")
    assert detector.wanted(scene.detector_state, LIMITS) == detector.Wanted(1.0, True, closely=True)
    scene.silent(3600)
    wanted = detector.wanted(scene.detector_state, LIMITS)
    assert wanted.census
    assert 2.0 < wanted.period <= LIMITS.stale_device / 2, "two readings that are not stale lie in any window"
    assert scene.detector_state.still, "the verdict still holds by them"
    scene.train(5)
    assert detector.wanted(scene.detector_state, LIMITS).period == 1.0


def test_it_wants_to_be_asked_again_within_a_second_because_its_clock_runs_with_events():
    scene = Alone().train(60)

    assert scene.detector_state.check_at == pytest.approx(scene.now + 1.0)
    assert scene.exit().detector_state.check_at is None


def test_the_census_of_a_long_night_forgives_a_timer_that_was_just_awake():
    scene = Alone()
    for second in range(3000):
        scene.now += 1.0
        few = OWN | {"timed": 0} if second % 30 == 0 else OWN
        scene.training.tree = msgspec.structs.replace(scene.tree, census=few, cpu=scene.tree.cpu + 1)
        scene.feed(Sampled(at=scene.now, reading=scene.tree))
        scene.progress(
            phase="step", beats=scene.heartbeat.beats + 10, fits=1, fit_beats=scene.heartbeat.fit_beats + 10, epoch=0,
            batch=scene.heartbeat.batch + 10, longest=0.1, longest_phase="step", step_s=scene.heartbeat.step_s + 0.9,
        )  # fmt: skip

    assert scene.silent_until("stalled") <= 11
    assert scene.detector_state.judgement.evidence == "deadlock"
