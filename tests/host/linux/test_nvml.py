"""NVML's answers as readings, by a driver made of plain values."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stallguard.host.linux import nvml
from stallguard.host.linux.nvml import NvidiaGpu


class Driver:
    """Stands for pynvml: two devices, of which the second is used by process 42."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    NVML_ERROR_NOT_FOUND = 6
    NVML_ERROR_NOT_SUPPORTED = 3

    def __init__(self) -> None:
        self.running: dict[int, list[int]] = {0: [], 1: [42]}
        self.samples: dict[int, list[Any]] = {0: [], 1: []}
        self.unsupported: set[str] = set()

    def _check(self, name: str) -> None:
        if name in self.unsupported:
            raise self.NVMLError(self.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's own names
        return len(self.running)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._check("handles")
        return index

    def nvmlDeviceGetName(self, _device: int) -> bytes:  # noqa: N802
        return b"NVIDIA H200"

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:  # noqa: N802
        self._check("rates")
        return SimpleNamespace(gpu=[3, 97][device])

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=[100, 7000][device])

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:  # noqa: N802
        self._check("power")
        return [70_000, 512_000][device]

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[Any]:  # noqa: N802
        self._check("running")
        return [SimpleNamespace(pid=pid) for pid in self.running[device]]

    def nvmlDeviceGetProcessUtilization(self, device: int, since: int) -> list[Any]:  # noqa: N802
        self._check("samples")
        fresh = [sample for sample in self.samples[device] if sample.timeStamp > since]
        if not fresh:
            raise self.NVMLError(self.NVML_ERROR_NOT_FOUND)
        return fresh


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(nvml, "_nvml", lambda: made)
    return made


def _sample(pid: int, busy: int, at: int) -> Any:
    return SimpleNamespace(pid=pid, smUtil=busy, timeStamp=at)


def test_a_gpu_is_there_if_nvml_counts_it_and_unknown_if_only_its_driver_is(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert nvml.has_gpu() is True
    monkeypatch.setattr(nvml, "_nvml", lambda: None)
    monkeypatch.setattr(nvml, "KERNEL_DRIVERS", (str(tmp_path / "kfd"),))
    assert nvml.has_gpu() is False
    (tmp_path / "kfd").touch()
    assert nvml.has_gpu() is None


def test_a_device_that_is_lost_is_an_error_of_the_system_and_none_of_a_library(driver: Driver) -> None:
    driver.unsupported.add("handles")
    with pytest.raises(OSError, match="NVML"):
        NvidiaGpu().read([42])


def test_without_a_driver_there_is_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_nvml", lambda: None)
    assert NvidiaGpu().read([42]) is None


@pytest.mark.usefixtures("driver")
def test_only_the_device_that_our_processes_hold_is_reported() -> None:
    reading = NvidiaGpu().read([41, 42])
    assert reading is not None
    assert (reading.name, reading.utilisation, reading.power, reading.memory) == ("NVIDIA H200", 0.97, 512.0, 7000)
    assert reading.used_by_run is True


def test_our_processes_move_only_while_samples_show_them_at_work(driver: Driver) -> None:
    gpu = NvidiaGpu()
    driver.samples[1] = [_sample(42, 90, 1000)]
    assert gpu.read([42]).moved is None  # the first look cannot tell since when
    driver.samples[1].append(_sample(42, 88, 2000))
    assert gpu.read([42]).moved is True
    driver.samples[1].append(_sample(77, 99, 3000))
    assert gpu.read([42]).moved is False
    assert gpu.read([42]).moved is False  # no sample at all: idle


def test_a_container_that_sees_the_hosts_pids_makes_ownership_unknown(driver: Driver) -> None:
    driver.running[1] = [990_001]
    reading = NvidiaGpu().read([42])
    assert reading.used_by_run is None
    assert reading.moved is None
    assert reading.utilisation == 0.97


def test_an_unused_device_is_not_ours(driver: Driver) -> None:
    driver.running[1] = []
    assert NvidiaGpu().read([42]).used_by_run is False


def test_what_a_device_does_not_support_is_unknown_not_zero(driver: Driver) -> None:
    driver.unsupported = {"rates", "power", "running", "samples"}
    reading = NvidiaGpu().read([42])
    assert reading is not None
    assert (reading.utilisation, reading.power, reading.used_by_run, reading.moved) == (None, None, None, None)
    assert reading.memory == 7100
