"""NVIDIA's GPUs through NVML (package nvidia-ml-py), if there is a driver; without one nothing is read.

Utilisation is no sign of life (a wedged collective shows 100 % at a fraction of its power), so power is read
too.  This module must not judge either.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection
from typing import Any

from stallguard.core.readings import Device

KERNEL_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' GPU under WSL

CUDA_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")


def has_gpu() -> bool | None:
    """Return whether the machine has a GPU that computes; None if it has the driver of one that cannot be read."""
    if cuda_cards():
        return True
    return None if any(os.path.exists(path) for path in KERNEL_DRIVERS) else False  # noqa: PTH110 - no more is asked


def cuda_cards() -> int | None:
    """Return how many cards CUDA has; None if there is the driver of one that cannot be read."""
    nvml = _nvml()
    if nvml is not None:
        try:
            return int(nvml.nvmlDeviceGetCount())
        except nvml.NVMLError:
            return None
    return None if any(os.path.exists(path) for path in CUDA_DRIVERS) else 0  # noqa: PTH110 - no more is asked


class NvidiaGpu:
    """The NVIDIA devices of this machine, read as one."""

    def __init__(self) -> None:
        """Open nothing yet: the driver is asked at the first reading."""
        self._seen = 0  # microseconds, newest sample of process utilisation that was read

    def read(self, pids: Collection[int]) -> Device | None:
        """Return the devices that the processes `pids` use, or all if none is known; None without NVML.

        Raises OSError if a device is lost.
        """
        nvml = _nvml()
        if nvml is None:
            return None
        try:
            devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error
        if not devices:
            return None
        holders: list[set[int] | None] = []
        for device in devices:
            running = _try(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, device)
            holders.append(None if running is None else {process.pid for process in running})
        used = [device for device, held in zip(devices, holders, strict=True) if held and held & set(pids)]
        known = [held for held in holders if held is not None]
        # In a container NVML has the host's pids: the absence of ours among others proves nothing.
        mine = True if used else None if not known or any(known) else False
        return self._reading(nvml, used or devices, pids, mine)

    def _reading(self, nvml: Any, devices: list[Any], pids: Collection[int], mine: bool | None) -> Device:
        rates = [_try(nvml, nvml.nvmlDeviceGetUtilizationRates, device) for device in devices]
        memory = [_try(nvml, nvml.nvmlDeviceGetMemoryInfo, device) for device in devices]
        power = [_try(nvml, nvml.nvmlDeviceGetPowerUsage, device) for device in devices]
        busy = [rate.gpu / 100 for rate in rates if rate is not None]
        used = [info.used for info in memory if info is not None]
        watts = [milliwatts / 1000 for milliwatts in power if milliwatts is not None]
        name = _try(nvml, nvml.nvmlDeviceGetName, devices[0])
        moved = None
        if mine:  # whether a sample since the last reading shows our processes at work; None: none is kept
            first = self._seen == 0
            samples = [_samples(nvml, device, self._seen) for device in devices]
            kept = [one for each in samples if each is not None for one in each]
            self._seen = max([self._seen, *(sample.timeStamp for sample in kept)])
            if not first and any(each is not None for each in samples):
                moved = any(sample.pid in pids and sample.smUtil > 0 for sample in kept)
        return Device(
            name=name.decode(errors="replace") if isinstance(name, bytes) else name,
            utilisation=max(busy) if busy else None,
            moved=moved,
            power=sum(watts) if watts else None,
            memory=sum(used) if used else None,
            used_by_run=mine,
        )


def _samples(nvml: Any, device: Any, since: int) -> list[Any] | None:
    """Return the samples of process utilisation after `since`; none if the device was idle, None if none is kept."""
    try:
        return list(nvml.nvmlDeviceGetProcessUtilization(device, since))
    except nvml.NVMLError as error:
        idle = getattr(nvml, "NVML_ERROR_NOT_FOUND", None)  # "no sample since then": idle, not unknown
        return [] if getattr(error, "value", object()) == idle else None


def _try(nvml: Any, ask: Callable[[Any], Any], device: Any) -> Any:
    with contextlib.suppress(nvml.NVMLError):  # not supported by this device or driver: unknown
        return ask(device)
    return None


@functools.cache
def _nvml() -> Any:
    """Return the NVML bindings, initialised once; None if they or the driver are missing."""
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml
