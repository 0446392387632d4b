"""What the frame of the training's thread adds to the detector's evidence, with and without a census."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.core.detection import detector
from stallguard.core.readings import Device
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import ALONE, Rates

LOCKED = ("lock", 0)
LATEST = 40  # seconds


def alone(**tree: object) -> Alone:
    """Return a local training without worker processes that has trained for a minute."""
    scene = Alone()
    scene.training.rates = Rates(cores=1.0, faults=50.0)  # no census
    scene.training.tree = replace(scene.tree, **(ALONE | tree))
    return scene.train(60)


def counted(**tree: object) -> Alone:
    """Return the same on a system that shows the wait sites of its threads."""
    scene = Alone()
    scene.training.tree = replace(scene.tree, **(ALONE | tree))
    return scene.train(60)


def test_a_lock_that_no_thread_can_release_is_a_deadlock_without_a_census():
    scene = alone()

    assert scene.silent_until("stalled", "no census", frame=LOCKED) <= 11.0
    assert scene.detector_state.judgement.evidence == "deadlock"
    assert detector.act_at(scene.detector_state, LIMITS) == scene.now, "it is certain"


def test_it_is_as_old_as_the_lock_if_the_readings_show_idleness_only_a_little_later():
    scene = alone()
    silent_since = scene.now
    scene.training.stuck_rates = Rates(cores=1.0)
    # As if these readings still had the work before the lock in them.
    scene.silent(1.4, frame=LOCKED, tick=0.7)

    scene.silent_until("stalled", "no census", frame=LOCKED)

    assert scene.now - silent_since <= 11.0


@pytest.mark.parametrize(
    "frame", [("lock", 1), ("lock", -1), ("timed", 0), ("sleep", 0), ("io", 0), ("library", 0), ("", -1)], ids=str
)
def test_any_other_wait_is_no_deadlock_without_a_census(frame: tuple[str, int]):
    scene = alone()

    assert scene.silent_until("stalled", "no census", frame=frame) == pytest.approx(30, abs=1)
    assert scene.detector_state.judgement.evidence == "external wait"
    assert not scene.detector_state.judgement.certain


@pytest.mark.parametrize("tree", [{"members": 2}, {"members": None}, {"remote": None}], ids=str)
def test_a_lock_proves_nothing_alone_if_another_process_or_a_host_that_is_not_seen_could_release_it(tree):
    scene = alone(**tree)

    scene.silent_until("stalled", "no census", frame=LOCKED)

    assert scene.detector_state.judgement.evidence == "external wait"


def test_a_job_with_a_connection_to_another_host_gets_as_long_as_with_a_census():
    blind = alone(remote=True).silent_until("stalled", "no census", frame=LOCKED)

    assert blind == pytest.approx(LIMITS.remote_deadlock, abs=1)
    assert blind == pytest.approx(counted(remote=True).silent_until("stalled", "deadlock", frame=LOCKED), abs=1)


@pytest.mark.parametrize("frame", [("sleep", 0), ("timed", 0), ("io", 0), ("lock", 2)], ids=str)
def test_the_frame_speaks_against_a_deadlock_of_the_census(frame: tuple[str, int]):
    scene = counted()

    assert scene.silent_until("stalled", "deadlock", frame=frame) == pytest.approx(30, abs=1)
    assert scene.detector_state.judgement.evidence == "external wait"


def test_a_call_of_the_library_is_no_deadlock_if_a_function_that_it_called_sleeps():
    scene = counted()

    assert scene.silent_until("stalled", "deadlock", frame=("library", 1)) == pytest.approx(30, abs=1)
    assert scene.detector_state.judgement.evidence == "external wait"


@pytest.mark.parametrize("frame", [LOCKED, ("lock", -1), ("library", -1), ("", -1)], ids=str)
def test_a_frame_that_says_nothing_against_it_leaves_the_deadlock_to_the_census(frame: tuple[str, int]):
    scene = counted()

    assert scene.silent_until("stalled", "deadlock", frame=frame) <= 11.0
    assert scene.detector_state.judgement.evidence == "deadlock"


def test_a_call_of_the_library_can_read_from_the_host_to_which_the_job_has_a_connection():
    scene = counted(remote=True)

    assert scene.silent_until("stalled", "deadlock", frame=("library", -1)) == pytest.approx(75, abs=1)
    assert scene.detector_state.judgement.evidence == "external wait"


@pytest.mark.parametrize("way", ["socket", "sleeper"])
def test_a_thread_of_the_census_that_something_could_wake_outweighs_a_lock_in_the_frame(way: str):
    scene = counted()

    assert scene.silent_until("stalled", way, frame=LOCKED) == pytest.approx(30, abs=1)
    assert scene.detector_state.judgement.evidence == "external wait"


def hangs_early(how: str, frame: tuple[str, int], *, begun: int = 0, **tree: object) -> float:
    """Have a training hang of whose threads nothing is known; return the seconds until it is judged.

    It has trained 50 batches, and the first census comes in its silence.  `begun`: threads that begin with that.
    """
    scene = Alone()
    scene.training.rates = Rates(cores=1.0, faults=50.0)
    scene.training.tree = replace(scene.tree, threads=14, **(ALONE | tree))
    scene.train(5)
    silent_since = scene.now
    scene.training.tree = replace(scene.tree, threads=14 + begun)
    scene.silent(2.5, "no census", frame=frame)
    scene.silent_until("stalled", how, frame=frame)
    return scene.now - silent_since


def test_a_runtime_with_timers_of_its_own_delays_no_judgement_before_these_are_known():
    assert hangs_early("deadlock", LOCKED) <= 11.0


@pytest.mark.parametrize("frame", [("lock", 1), ("lock", -1), ("library", 0), ("call", 0), ("", -1)], ids=str)
def test_such_a_thread_can_end_any_other_wait(frame: tuple[str, int]):
    assert hangs_early("deadlock", frame) >= 29


def test_such_a_thread_can_release_a_lock_if_it_is_new_or_of_another_process():
    assert hangs_early("deadlock", LOCKED, begun=1) >= 29
    assert hangs_early("deadlock", LOCKED, members=2) >= 29


def test_before_the_first_healthy_steps_such_a_thread_can_release_a_lock():
    scene = Alone()
    scene.training.tree = replace(scene.tree, threads=14, **ALONE)
    scene.sampled(scene.tree)
    scene.progress(phase="first run", phase_at=scene.now, fits=1)
    scene.silent(2.5, "no census", frame=LOCKED)

    assert scene.silent_until("stalled", "deadlock", frame=LOCKED) >= 290


def test_a_socket_outweighs_a_lock_in_the_first_seconds_too():
    assert hangs_early("socket", LOCKED) >= 29


def test_a_lock_that_nothing_can_release_needs_no_known_pace():
    slow = Alone(batch=1.0)
    slow.training.tree = replace(slow.tree, **ALONE)
    slow.train(12)

    assert slow.silent_until("stalled", "deadlock", frame=LOCKED) <= 11.0


@pytest.mark.parametrize(("batches", "frame", "tree"), [
    (12, ("lock", -1), ALONE), (12, ("library", 0), ALONE), (12, LOCKED, ALONE | {"members": 2}), (6, LOCKED, ALONE),
])  # fmt: skip
def test_any_other_wait_in_the_first_batches_has_its_time(
    batches: int, frame: tuple[str, int], tree: dict[str, object]
):
    slow = Alone(batch=1.0)
    slow.training.tree = replace(slow.tree, **tree)
    slow.train(batches)

    assert slow.silent_until("stalled", "deadlock", frame=frame) >= 59.0


def test_the_thread_of_a_gpus_driver_releases_no_lock_of_python():
    scene = counted()

    assert scene.silent_until("stalled", "driver", frame=LOCKED) <= 11.0
    assert scene.detector_state.judgement.evidence == "deadlock"


def test_nor_in_a_census_that_comes_before_the_record_that_shows_the_lock():
    scene = counted()
    silent_since = scene.now
    scene.silent(3.0, "driver", pulses=False)

    scene.silent_until("stalled", "driver", frame=LOCKED)

    assert scene.now - silent_since <= 11.0
    assert scene.detector_state.judgement.evidence == "deadlock"


@pytest.mark.parametrize("frame", [("", -1), ("library", -1), ("lock", 1), ("call", 0)], ids=str)
def test_the_thread_of_a_gpus_driver_can_end_any_other_wait(frame: tuple[str, int]):
    scene = counted()

    assert scene.silent_until("stalled", "driver", frame=frame) >= 29
    assert scene.detector_state.judgement.evidence == "external wait"


def test_the_time_counts_from_when_the_last_thread_could_no_longer_release_the_lock():
    scene = alone().silent(8, "no census", frame=("lock", 1))

    assert scene.silent_until("stalled", "no census", frame=LOCKED) >= 7.0


def test_what_a_record_says_of_a_wait_before_the_last_progress_is_not_used():
    scene = alone().silent(4, "no census", frame=LOCKED)
    old = scene.heartbeat
    scene.train(1)
    scene.training.record = replace(scene.heartbeat, wait="lock", wait_at=old.wait_at, wakers=0)

    scene.silent_until("stalled", "no census")

    assert scene.detector_state.judgement.evidence == "external wait"


def test_what_an_old_record_says_is_not_used():
    scene = alone().silent(4, "no census", frame=LOCKED)

    scene.silent_until("stalled", "no census", frame=LOCKED, pulses=False)

    assert scene.detector_state.judgement.evidence == "external wait"


def test_a_lock_is_no_wait_for_a_gpu_and_so_it_is_certain_although_a_gpu_is_used():
    scene = alone()
    scene.sampled(Device(used_by_run=True, moved=False, utilisation=0.0))
    for _ in range(11):
        scene.sampled(Device(used_by_run=True, moved=False, utilisation=0.0))
        scene.silent(1.0, "no census", frame=LOCKED)

    assert scene.detector_state.judgement.evidence == "deadlock"
    assert detector.act_at(scene.detector_state, LIMITS) == scene.now


# A busy GPU, if it is not known which program uses it; one that the training uses; one whose state cannot be read.
GPUS = {
    "owner not known": Device(utilisation=0.9),
    "used by the training": Device(used_by_run=True, utilisation=0.9, power=100.0),
    "not readable": Device(used_by_run=True),
}


@pytest.mark.parametrize("device", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("counts", [False, True], ids=["frame", "census"])
def test_a_lock_is_judged_as_soon_while_a_gpu_is_busy_or_cannot_be_read(counts: bool, device: Device):
    assert locks_beside(device, LOCKED, counts=counts) <= 13.0


@pytest.mark.parametrize("device", GPUS.values(), ids=GPUS)
@pytest.mark.parametrize("frame", [("lock", 1), ("lock", -1), ("call", 0), ("", -1)], ids=str)
def test_any_other_wait_can_be_one_for_such_a_gpu(frame: tuple[str, int], device: Device):
    assert locks_beside(device, frame) > 30.0


def locks_beside(device: Device, frame: tuple[str, int], *, counts: bool = True) -> float:
    """Return the seconds until a silence of 40 s is judged, LATEST if it is not."""
    scene, way = (counted(), "deadlock") if counts else (alone(), "no census")
    scene.sampled(device)
    for second in range(1, LATEST):
        scene.sampled(device)
        scene.silent(1.0, way, frame=frame)
        if scene.detector_state.judgement.step == "stalled":
            return second
    return LATEST
