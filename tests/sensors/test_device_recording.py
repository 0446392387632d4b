"""Readings of a real NVIDIA device (made by tests/live/nvml_probe.py): work and waiting can be told apart."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stallguard.core.readings import Device

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings" / "nvml").glob("*.jsonl"))


class Row(msgspec.Struct):
    at: float
    doing: str
    device: Device | None = None


def rows(path: Path) -> list[Row]:
    return [msgspec.json.decode(line, type=Row) for line in path.read_bytes().splitlines()]


def during(path: Path, doing: str) -> list[Device]:
    """Return the readings well inside a phase: NVML's own window is up to a second long."""
    found = [row.device for row in rows(path) if row.doing == doing and row.device is not None]
    assert len(found) > 4
    return found[2:-1]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_training_is_seen_at_work_on_its_device(path: Path) -> None:
    work = during(path, "train")
    assert max(device.utilisation or 0 for device in work) > 0.05
    assert all(device.name and device.power and device.memory for device in work)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_host_that_waits_leaves_its_device_idle(path: Path) -> None:
    assert all((device.utilisation or 0) <= 0.05 for device in during(path, "wait"))
    assert not any(device.moved for device in during(path, "wait"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_spinning_kernel_is_busy_at_a_fraction_of_the_works_power(path: Path) -> None:
    spin, work = during(path, "spin"), during(path, "train")
    assert max(device.utilisation or 0 for device in spin) > 0.5
    assert max(device.memory_utilisation or 0 for device in spin) <= 0.02  # of recordings that have it
    assert min(device.power or 0 for device in spin) < max(device.power or 0 for device in work)
