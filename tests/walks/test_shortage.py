"""A training beside others: the verdicts, and the same course here with stand-ins for what is not here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HELD, FAILED, UNASKED = "held", "did not hold", "not asked"
OTHER = """
import sys, time
print("gpus", {gpus}, flush=True)
for number in range(100_000):
    print("batch", number, flush=True)
    time.sleep(0.05)
"""
REFUSED = """#!/bin/sh
echo "sysctl: kern.memorypressure_manual_trigger failed : Operation not permitted"
exit 255
"""


def test_beside_another_a_training_must_go_on_without_an_alarm():
    from mac.verdicts_shortage import beside

    assert beside(400, 90, 0, 1, "").verdict == HELD
    assert beside(400, 90, 1, 1, "").verdict == FAILED
    assert beside(0, 90, 0, 0, "no GPU").verdict == FAILED
    assert beside(400, 0, 0, 0, "").verdict == UNASKED, "the other did nothing"


def test_the_others_use_of_the_gpu_is_not_the_trainings():
    from mac.verdicts_shortage import blocked

    ours, other = {"utilisation": 0.97, "moved": True}, {"utilisation": 0.97, "moved": False}
    row = blocked(31.0, [other, other])
    assert (row.verdict, row.figure) == (
        HELD, "a stall after 31 s; GPU: 97% in use; counted as the training's in 0 of 2 readings",
    )  # fmt: skip
    assert blocked(31.0, [other, ours]).verdict == FAILED
    assert blocked(None, [other]).verdict == FAILED
    assert blocked(75.0, [other]).verdict == FAILED
    assert blocked(31.0, []).verdict == UNASKED
    assert blocked(31.0, [{"utilisation": 0.2, "moved": False}]).verdict == UNASKED
    assert blocked(31.0, [{"utilisation": 0.97}]).verdict == UNASKED, "not read is not idle"


def test_a_shortage_must_be_seen_and_be_no_alarm():
    from mac.verdicts_shortage import short

    assert short(0, "", ["normal", "warn"], [], 250).verdict == HELD
    assert short(0, "", ["normal"], [], 250).verdict == FAILED
    assert short(0, "", ["warn"], ["attempt.restarting"], 250).verdict == FAILED
    assert short(0, "", ["warn"], [], 0).verdict == FAILED
    row = short(1, "sudo: a password is required\n", [], [], 0)
    assert (row.verdict, "a password is required" in row.means) == (UNASKED, True)


def test_readings_are_those_of_a_sensor_since_a_time():
    from mac.shortage import readings

    events = [
        {"time": "2026-11-28T06:48:22.000Z", "event": "reading", "reading": {"sensor": "memory", "pressure": "normal"}},
        {"time": "2026-11-28T06:48:30.000Z", "event": "reading", "reading": {"sensor": "memory", "pressure": "warn"}},
        {"time": "2026-11-28T06:48:31.000Z", "event": "reading", "reading": {"sensor": "device"}},
        {"time": "2026-11-28T06:48:32.000Z", "event": "training.stalled"},
    ]
    since = 1_795_848_505.0  # 06:48:25
    assert [one["pressure"] for one in readings(events, "memory", since)] == ["warn"]
    assert len(readings(events, "memory", since - 60)) == 2


@pytest.fixture
def real(tmp_path):
    """A scene that runs real programs."""
    from mac.scene import Scene

    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    made = Scene(tmp_path, env, lambda _line: None)
    made.metal_pythons = {"main": sys.executable}
    return made


def other_process(scene, monkeypatch, gpus: int):
    from mac import gpu

    script = scene.home / "load.py"
    script.write_text(OTHER.format(gpus=gpus))
    monkeypatch.setattr(gpu, "LOAD", script)


def test_without_a_gpu_nothing_is_shared(real, monkeypatch):
    from mac import shortage

    other_process(real, monkeypatch, gpus=0)
    [row] = shortage.shared(real)
    assert (row.verdict, row.figure.startswith("0 GPUs")) == (UNASKED, True)


@pytest.mark.tf
@pytest.mark.live
@pytest.mark.waits
def test_a_training_goes_on_beside_another_and_is_a_stall_once_it_waits(real, monkeypatch):
    from mac import shortage

    other_process(real, monkeypatch, gpus=1)
    monkeypatch.setattr(shortage, "WATCH", 3.0)
    beside, blocked = shortage.shared(real)
    assert beside.verdict == HELD, beside
    assert beside.figure.endswith("0 stalls, 0 possible stalls")
    assert blocked.figure.startswith("a stall after "), blocked


@pytest.mark.live
def test_a_shortage_is_simulated_to_its_end_or_said_to_be_refused(real, monkeypatch):
    from mac import shortage

    tool = real.home / "memory_pressure"
    tool.write_text(REFUSED)
    tool.chmod(0o755)
    monkeypatch.setattr(shortage, "SIMULATE", (str(tool),))
    monkeypatch.setattr(shortage, "AS_ROOT", ("/bin/sh",))
    [row] = shortage.memory(real)
    assert (row.verdict, "Operation not permitted" in row.means) == (UNASKED, True)

    tool.write_text("#!/bin/sh\necho 'Reset system state'\n")
    monkeypatch.setattr(shortage, "readings", lambda _events, _sensor, _since: [{"pressure": "warn"}])
    [row] = shortage.memory(real)
    assert row.verdict == HELD, row
    assert real.files["memory_pressure_simulated.txt"] == "Reset system state\n"
