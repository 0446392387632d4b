"""What is not known is no sign of rest: no verdict on idleness, or on a wait for a device, is built on it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.core.readings import Device
from tests.simulation.alone import LIMITS, Alone

USED = Device(utilisation=0.0, moved=False, power=80.0, used_by_run=True)
IN_CONTAINER = replace(USED, moved=None, used_by_run=None)  # NVML has the host's pids there


def reads(device: Device | None) -> Alone:
    scene = Alone()
    scene.system.device = device
    return scene.train(60)


def lost(scene: Alone, how: str) -> Alone:
    """From now on the device is not read, or its readings do not say whether it works."""
    scene.system.device = (
        None if how == "silent" else replace(scene.system.device or USED, utilisation=None, moved=None)
    )
    return scene


@pytest.mark.parametrize("device", [USED, IN_CONTAINER], ids=["used", "in a container"])
@pytest.mark.parametrize("how", ["silent", "empty"])
@pytest.mark.parametrize(
    ("does", "frame"),
    [("deadlock", ("library", 0)), ("no census", ("library", 0)), ("spin", ("device", 0)), ("spin", ("library", 0))],
)
def test_who_waits_while_its_gpu_cannot_be_read_is_not_called_idle(
    device: Device, how: str, does: str, frame: tuple[str, int]
) -> None:
    scene = lost(reads(device), how).silent(6, does, frame=frame)

    assert scene.silent_until("stalled", does, frame=frame) == pytest.approx(LIMITS.no_evidence - 6, abs=2)
    assert scene.detector_state.judgement.evidence == "unknown"


def test_a_loop_of_the_scripts_own_waits_for_no_gpu() -> None:
    assert lost(reads(USED), "silent").silent_until("stalled", "spin", frame=("place", 0)) == pytest.approx(120, abs=4)


@pytest.mark.parametrize("device", [None, replace(USED, used_by_run=False)], ids=["no reading", "of others"])
def test_who_uses_no_gpu_that_can_be_seen_is_judged_as_if_there_were_none(device: Device | None) -> None:
    assert reads(device).silent_until("stalled", "deadlock", frame=("library", 0)) <= 11


def test_idleness_counts_from_when_the_gpu_could_be_read_again() -> None:
    scene = lost(reads(USED), "silent").silent(100, "deadlock", frame=("library", 0))
    scene.system.device = USED

    assert 5 <= scene.silent_until("stalled", "deadlock", frame=("library", 0)) <= 11


def test_a_reading_that_comes_seldom_before_a_silence_delays_no_verdict() -> None:
    """Before a gap the sensor reads each ten seconds, so its newest reading is old when the gap begins."""
    scene = lost(reads(USED), "silent").train(8)
    began = scene.now
    scene.silent(3, "deadlock", frame=("library", 0))
    scene.system.device = USED
    scene.silent_until("stalled", "deadlock", frame=("library", 0))

    assert scene.now - began <= 11.5


def test_a_job_of_whose_connections_nothing_is_known_can_wait_for_another_host() -> None:
    scene = Alone()
    scene.training.tree = replace(scene.tree, remote=None)
    scene.train(60)

    assert scene.silent_until("stalled", "socket") == pytest.approx(75, abs=1)
