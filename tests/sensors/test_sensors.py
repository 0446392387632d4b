"""A sensor of a plug-in, by the interface that stallguard.sensors describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.host import system
from stallguard.sensors import Target
from stallguard.sensors.sensor_registry import sensors

PLUG_IN = """
from stallguard.core.readings import Machine

class Thermometer:
    name = "thermometer"
    period = 60.0

    def __init__(self, target):
        self.target = target

    def read(self):
        return Machine(thermal="fair")

def unmakeable(target):
    return 1 / 0
"""


def test_a_plug_in_adds_a_sensor_and_a_broken_one_is_reported_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "extra-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: extra\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[stallguard.sensors]\n"
        "good = extra_sensors:Thermometer\nbad = no_such_driver:Sensor\nworse = extra_sensors:unmakeable\n"
    )
    (tmp_path / "extra_sensors.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(str(tmp_path))

    troubles: list[str] = []
    made = sensors(Target(root=7), system, lambda name, error: troubles.append(f"{name}: {error}"))

    assert [one.name for one in made][-1] == "thermometer"
    assert made[-1].target.root == 7
    assert troubles == ["bad: No module named 'no_such_driver'", "worse: division by zero"]
