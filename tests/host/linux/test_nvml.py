"""NVML's answers as readings, by a driver made of plain values."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stallguard.core.readings import Device
from stallguard.host.linux import nvml
from stallguard.host.linux.nvml import NvidiaGpu

OURS = 2**22 + 42  # no process has it: above PID_MAX_LIMIT, include/linux/threads.h
NOT_SUPPORTED, NOT_FOUND, TIMEOUT, GPU_IS_LOST = 3, 6, 10, 15  # nvml.h, nvmlReturn_t


class Driver:
    """Stands for pynvml: two devices, of which the second is used by process OURS."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    def __init__(self) -> None:
        self.running: dict[int, list[int]] = {0: [], 1: [OURS]}
        self.samples: dict[int, list[Any]] = {0: [], 1: []}
        self.unsupported: set[str] = set()
        self.lost: set[int] = set()
        self.xids: dict[int, list[int]] = {0: [], 1: []}  # not yet taken
        self.reasons = 0x1
        self.counters: list[int] = []  # handed out
        self.asked: list[str] = []

    def _answer(self, name: str, device: int, values: list[Any]) -> Any:
        self.asked.append(name)
        if name in self.unsupported:
            raise self.NVMLError(NOT_SUPPORTED)
        if device in self.lost:
            raise self.NVMLError(GPU_IS_LOST)
        return values[device]

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's own names
        return len(self.running)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return self._answer("handles", index, [0, 1])

    def nvmlDeviceGetName(self, device: int) -> bytes:  # noqa: N802
        return self._answer("name", device, [b"NVIDIA H200"] * 2)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:  # noqa: N802
        rates = [SimpleNamespace(gpu=3, memory=1), SimpleNamespace(gpu=97, memory=40)]
        return self._answer("rates", device, rates)

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:  # noqa: N802
        return self._answer("memory", device, [SimpleNamespace(used=100), SimpleNamespace(used=7000)])

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:  # noqa: N802
        return self._answer("power", device, [70_000, 512_000])

    def nvmlDeviceGetEnforcedPowerLimit(self, device: int) -> int:  # noqa: N802
        return self._answer("limit", device, [700_000, 600_000])

    def nvmlDeviceGetClockInfo(self, device: int, kind: int) -> int:  # noqa: N802
        assert kind == 1  # the multiprocessors'
        return self._answer("clock", device, [345, 1755])

    def nvmlDeviceGetMaxClockInfo(self, device: int, kind: int) -> int:  # noqa: N802
        assert kind == 1
        return self._answer("clock", device, [1980, 1980])

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: int) -> int:  # noqa: N802 - older drivers' only name
        return self._answer("reasons", device, [self.reasons] * 2)

    def nvmlDeviceGetTotalEccErrors(self, device: int, kind: int, counter: int) -> int:  # noqa: N802
        assert (kind, counter) == (1, 0)  # uncorrected, volatile
        return self._answer("errors", device, [0, 2])

    def nvmlDeviceGetComputeRunningProcesses(self, device: int) -> list[Any]:  # noqa: N802
        running = [[SimpleNamespace(pid=pid) for pid in self.running[index]] for index in (0, 1)]
        return self._answer("running", device, running)

    def nvmlDeviceGetProcessUtilization(self, device: int, since: int) -> list[Any]:  # noqa: N802
        samples: list[Any] = self._answer("samples", device, [self.samples[0], self.samples[1]])
        fresh = [sample for sample in samples if sample.timeStamp > since]
        if not fresh:
            raise self.NVMLError(NOT_FOUND)
        return fresh

    def nvmlEventSetCreate(self) -> list[int]:  # noqa: N802
        return []

    def nvmlDeviceRegisterEvents(self, device: int, kinds: int, events: list[int]) -> None:  # noqa: N802
        assert kinds == 8  # critical Xid errors
        events.append(self._answer("events", device, [0, 1]))

    def nvmlEventSetWait(self, events: list[int], milliseconds: int) -> Any:  # noqa: N802
        assert milliseconds == 0  # a sensor must not wait for an error
        waiting = [number for device in events for number in self.xids[device]]
        if not waiting:
            raise self.NVMLError(TIMEOUT)
        return SimpleNamespace(eventData=self.xids[events[0]].pop(0))

    def nvmlGpmQueryDeviceSupport(self, device: int) -> Any:  # noqa: N802
        self._answer("counters", device, [0, 1])
        return SimpleNamespace(isSupportedDevice=1)

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:  # noqa: N802
        self.counters.append(len(self.counters))
        return SimpleNamespace(taken=0)

    def nvmlGpmSampleGet(self, _device: int, sample: SimpleNamespace) -> None:  # noqa: N802
        sample.taken = 1 + max((one for one in self.asked if isinstance(one, int)), default=0)
        self.asked.append(sample.taken)  # type: ignore[arg-type]

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=-1, value=0.0)])

    def nvmlGpmMetricsGet(self, wanted: Any) -> Any:  # noqa: N802
        assert (wanted.version, wanted.numMetrics, wanted.metrics[0].metricId) == (1, 1, 2)
        assert wanted.sample1.taken < wanted.sample2.taken  # the older one first
        wanted.metrics[0].nvmlReturn, wanted.metrics[0].value = 0, 0.8
        return wanted


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(nvml, "_nvml", lambda: made)
    return made


def _at(now: list[float]) -> NvidiaGpu:
    """Return a GPU on whose clock it is the first of these seconds."""
    return NvidiaGpu(lambda: now[0])


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


def test_devices_that_are_all_lost_are_an_error_of_the_system_and_none_of_a_library(driver: Driver) -> None:
    driver.lost = {0, 1}
    with pytest.raises(OSError, match="NVML"):
        NvidiaGpu().read([OURS])


def test_a_lost_device_is_told_and_hides_no_other_one(driver: Driver) -> None:
    driver.running[0] = [OURS]
    now = [0.0]
    gpu = _at(now)
    assert gpu.read([OURS]).lost == 0
    now[0], driver.lost, driver.xids[0] = 10.0, {0}, [79]
    reading = gpu.read([OURS])
    assert (reading.utilisation, reading.power, reading.lost) == (0.97, 512.0, 1)
    assert (reading.xid, reading.xid_count) == (79, 1)
    driver.lost = {1}
    now[0] = 20.0
    assert _at(now).read([OURS]).utilisation == 0.03


def test_a_lost_device_that_the_run_does_not_use_is_no_loss_of_it(driver: Driver) -> None:
    driver.lost = {0}
    assert NvidiaGpu().read([OURS]).lost == 0


def test_a_device_that_is_lost_between_two_questions_is_lost(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.running[0] = [OURS]

    def lose(device: int) -> int:
        driver.lost = {1}
        return driver._answer("power", device, [70_000, 512_000])

    monkeypatch.setattr(driver, "nvmlDeviceGetPowerUsage", lose)
    reading = NvidiaGpu().read([OURS])
    assert (reading.utilisation, reading.lost) == (0.03, 1)


def test_without_a_driver_there_is_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_nvml", lambda: None)
    assert NvidiaGpu().read([OURS]) is None


@pytest.mark.usefixtures("driver")
def test_only_the_device_that_our_processes_hold_is_reported() -> None:
    reading = NvidiaGpu().read([41, OURS])
    assert reading is not None
    assert (reading.name, reading.utilisation, reading.power, reading.memory) == ("NVIDIA H200", 0.97, 512.0, 7000)
    assert reading.used_by_run is True


def _work(gpu: NvidiaGpu) -> tuple[bool | None, float | None]:
    reading = gpu.read([OURS, 43])
    return reading.moved, reading.compute


def test_our_processes_move_only_while_samples_show_them_at_work(driver: Driver) -> None:
    gpu = NvidiaGpu()
    driver.samples[1] = [_sample(OURS, 90, 1000)]
    assert _work(gpu) == (None, None)  # the first look cannot tell since when
    driver.samples[1] += [_sample(OURS, 80, 2000), _sample(OURS, 60, 2100), _sample(43, 10, 2100), _sample(9, 20, 2100)]
    assert _work(gpu) == (True, 0.8)  # 70 % and 10 %
    driver.samples[1].append(_sample(77, 99, 3000))
    assert _work(gpu) == (False, 0.0)
    assert _work(gpu) == (False, 0.0)  # no sample at all: idle


def test_a_container_that_sees_the_hosts_pids_makes_ownership_unknown_if_the_driver_is_in_use(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver.running[1] = [990_001]
    monkeypatch.setattr(nvml, "CUDA_FILES", (str(tmp_path / "nv"),))
    with (tmp_path / "nvidia0").open("w"):
        reading = NvidiaGpu().read([os.getpid()])
    assert reading.used_by_run is None
    assert reading.moved is None
    assert reading.utilisation == 0.97


def test_what_has_no_file_of_the_driver_open_uses_no_device_of_others(driver: Driver) -> None:
    driver.running[1] = [990_001]
    assert NvidiaGpu().read([os.getpid()]).used_by_run is False
    driver.unsupported = {"running"}
    assert NvidiaGpu().read([os.getpid()]).used_by_run is False


def test_whether_a_process_that_has_ended_used_the_driver_is_not_known(driver: Driver) -> None:
    driver.running[1] = [990_001]
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert NvidiaGpu().read([ended.pid]).used_by_run is None


def test_an_unused_device_is_not_ours(driver: Driver) -> None:
    driver.running[1] = []
    assert NvidiaGpu().read([OURS]).used_by_run is False


def test_what_a_device_does_not_support_is_unknown_not_zero(driver: Driver) -> None:
    everything = {"rates", "power", "limit", "clock", "reasons", "errors", "running", "samples", "events", "counters"}
    driver.unsupported = everything
    reading = NvidiaGpu().read([OURS])
    assert reading == Device(name="NVIDIA H200", memory=7100, lost=0)


def test_a_binding_without_the_newer_functions_reads_the_rest(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvmlEventSetCreate", "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetEnforcedPowerLimit"):
        monkeypatch.delattr(Driver, name)
    reading = NvidiaGpu().read([OURS])
    assert (reading.power, reading.power_limit, reading.xid_count, reading.sm_activity) == (512.0, None, None, None)
    assert driver.xids == {0: [], 1: []}


def test_what_the_device_does_is_read_beside_how_busy_it_is(driver: Driver) -> None:
    now = [0.0]
    gpu = _at(now)
    reading = gpu.read([OURS])
    assert (reading.memory_utilisation, reading.power_limit, reading.ecc_errors) == (0.4, 600.0, 2)
    assert (reading.clock, reading.clock_limit, reading.slowed_by) == (1755, 1980, ())
    assert (reading.xid, reading.xid_count, reading.sm_activity) == (None, 0, None)
    now[0], driver.reasons, driver.xids[1] = 10.0, 0x8 | 0x40, [31, 43]
    reading = gpu.read([OURS])
    assert (reading.xid, reading.xid_count, reading.slowed_by) == (43, 2, ("heat",))
    assert reading.sm_activity == 0.008
    now[0] = 20.0
    assert gpu.read([OURS]).xid_count == 2
    assert driver.counters == [0, 1]  # two samples, taken in turns


@pytest.mark.parametrize(
    ("bits", "words"),
    [(0x1, ()), (0x4, ("power",)), (0x80 | 0x8, ("power",)), (0x20, ("heat",)), (0x8, ("hardware",)),
     (0x2, ("setting",)), (0x10 | 0x40, ("heat", "other devices"))],
)  # fmt: skip
def test_what_slows_the_clock_is_said_in_words_and_idling_is_not(bits: int, words: tuple[str, ...]) -> None:
    assert nvml.slowed_by(bits) == words


def test_several_devices_of_a_run_are_one_reading(driver: Driver) -> None:
    driver.running[0] = [OURS]
    reading = NvidiaGpu().read([OURS])
    assert (reading.utilisation, reading.memory_utilisation) == (0.97, 0.4)  # one that waits for another is idle
    assert (reading.power, reading.power_limit, reading.memory, reading.ecc_errors) == (582.0, 1300.0, 7100, 2)
    assert (reading.clock, reading.clock_limit) == (345, 1980)  # the slowest paces all


def test_a_sum_of_which_one_part_is_unknown_is_unknown(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.running[0] = [OURS]

    def of_one(device: int) -> int:
        if device == 0:
            raise driver.NVMLError(NOT_SUPPORTED)
        return 512_000

    monkeypatch.setattr(driver, "nvmlDeviceGetPowerUsage", of_one)
    reading = NvidiaGpu().read([OURS])
    assert (reading.power, reading.power_limit) == (None, 1300.0)


def test_questions_that_take_long_are_asked_seldom_and_trainings_share_the_answers(driver: Driver) -> None:
    now = [0.0]
    gpus = [_at(now) for _ in range(3)]
    for gpu in gpus:
        gpu.read([OURS])
    assert (driver.asked.count("power"), driver.asked.count("errors"), driver.asked.count("running")) == (1, 1, 2)
    now[0] = 2.0
    assert gpus[0].read([OURS]).ecc_errors == 2
    assert (driver.asked.count("power"), driver.asked.count("errors")) == (2, 1)
    now[0] = 4.0
    gpus[0].read([OURS])
    assert (driver.asked.count("power"), driver.asked.count("errors")) == (3, 2)


@pytest.mark.parametrize("sees_all", [True, False])
def test_the_other_programs_on_the_device_are_counted_where_they_can_be_seen(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, *, sees_all: bool
) -> None:
    monkeypatch.setattr(nvml, "sees_all_processes", lambda: sees_all)
    now = [0.0]
    gpu = _at(now)
    assert gpu.read([OURS]).others == (0 if sees_all else None)  # of those in other containers none is shown
    now[0], driver.running[1] = 10.0, [OURS, 7, 8]
    assert gpu.read([OURS]).others == 2
    now[0], driver.running[1] = 20.0, [7]
    assert gpu.read([OURS]).others is None  # whether one of them is ours is not known
