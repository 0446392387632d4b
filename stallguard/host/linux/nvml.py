"""NVIDIA's GPUs through NVML (package nvidia-ml-py), if there is a driver; without one nothing is read.

Utilisation is no sign of life (a wedged collective shows 100 % at a fraction of its power), so power is read
too.  This module must not judge either.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from statistics import fmean
from typing import Any, TypeVar

from msgspec.structs import replace

from stallguard.core.readings import Device

KERNEL_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' GPU under WSL

CUDA_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")
CUDA_FILES = ("/dev/nv", "/dev/dxg")  # what those of a process that uses CUDA begin with: a Jetson's are /dev/nvmap

PERCENT = 100
TOGETHER = 0.5  # seconds in which the trainings of a run are read one after another: one answer serves all
SLOW_EVERY = 4.0  # seconds between two questions that can take milliseconds: clocks, limits, errors, counters
MOST_EVENTS = 64  # taken in one reading

# nvml.h: nvmlReturn_t, nvmlEventTypeXidCriticalError, nvmlClockType_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t,
# nvmlGpmMetricId_t
NOT_FOUND, LOST = 6, (15, 16)  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
XID_EVENT, SM_CLOCK, UNCORRECTED, SINCE_BOOT, SM_UTIL = 8, 1, 1, 0, 2
# nvml.h, nvmlClocksEventReasons: the bits of each word.
SLOWING = {"power": 0x4 | 0x80, "heat": 0x20 | 0x40, "setting": 0x2 | 0x100, "other devices": 0x10}
HARDWARE, HARDWARE_REASONS = 0x8, 0x40 | 0x80

FIRST_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h

N = TypeVar("N", int, float)


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


def can_use_cuda(pids: Iterable[int]) -> bool:
    """Return whether one of the processes has a file of CUDA's driver open, or hides what it has."""
    seen = False
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            for name in os.listdir(folder):  # noqa: PTH208 - no object for each of a thousand
                with contextlib.suppress(FileNotFoundError):  # closed since
                    if os.readlink(f"{folder}/{name}").startswith(CUDA_FILES):  # noqa: PTH115
                        return True
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
        except OSError:
            return True
        seen = True
    return not seen


class NvidiaGpu:
    """The NVIDIA devices of this machine that a training uses, read as one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Open nothing yet: the driver is asked at the first reading.  `clock`: seconds."""
        self._clock = clock
        self._seen = 0  # microseconds, newest sample of process utilisation that was read
        self._ours: set[int] = set()  # indices of the devices that our processes were last seen on

    def read(self, pids: Collection[int], family: Collection[int] = ()) -> Device | None:
        """Return the devices that the processes `pids` use, or all if none is known; None without NVML.

        `family`: further processes of the run, which are no others.
        Raises OSError if no device can be read: the driver does not answer, or each is lost.
        """
        nvml = _nvml()
        if nvml is None:
            return None
        try:
            cards = {index: _card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())}
        except nvml.NVMLError as error:
            raise _as_error(error) from error
        now = self._clock()
        held: dict[int, set[int] | None] = {}
        refused: dict[int, OSError] = {}
        for index, card in cards.items():
            try:
                held[index] = card.holders(now)
            except OSError as error:
                refused[index] = error
        if refused and not held:
            raise next(iter(refused.values()))
        if not held:
            return None
        found = {index for index, pids_of in held.items() if pids_of and not pids_of.isdisjoint(pids)}
        known = [pids_of for pids_of in held.values() if pids_of is not None]
        # In a container NVML can have the host's pids: the absence of ours among others proves nothing.
        mine = True if found else None if (not known or any(known)) and can_use_cuda(pids) else False
        readings = {index: cards[index].read(now) for index in sorted(found or held)}
        lost = {index for index, error in refused.items() if isinstance(error, DeviceLostError)}
        lost |= {index for index, reading in readings.items() if reading is None}
        if found:
            self._ours = found | (self._ours & lost)
        lost &= self._ours or lost
        used = [cards[index] for index in readings]
        moved, compute = self._own_work(used, pids) if mine else (None, None)
        events = [cards[index].events() for index in {*readings, *lost}]
        return replace(
            _together([reading for reading in readings.values() if reading is not None]),
            moved=moved, compute=compute, used_by_run=mine,
            others=None if mine is None else _count_others([held[index] for index in readings], {*pids, *family}),
            xid=next((xid for xid, _ in events if xid is not None), None),
            xid_count=_sum([count for _, count in events]), lost=len(lost),
        )  # fmt: skip

    def _own_work(self, used: list[_Card], pids: Collection[int]) -> tuple[bool | None, float | None]:
        """Return whether a sample since the last reading shows our processes at work, and their share of the SMs.

        None: no sample is kept, or this is the first look, which cannot say since when.
        """
        first = self._seen == 0
        samples = [card.samples(self._seen) for card in used]
        kept = [[one for one in each if one.smUtil <= PERCENT] for each in samples if each is not None]
        self._seen = max([self._seen, *(one.timeStamp for each in kept for one in each)])
        if first or not kept:
            return None, None
        ours = [[(one.pid, one.smUtil) for one in each if one.pid in pids] for each in kept]
        shares = [
            sum(fmean(busy for pid, busy in each if pid == one) for one in {pid for pid, _ in each}) for each in ours
        ]
        return any(busy for each in ours for _, busy in each), min(1.0, max(shares) / PERCENT)


class DeviceLostError(OSError):
    """The driver has lost the device: it fell off the bus, or needs a restart."""


class _Card:
    """One device of the driver.  All trainings of the run share it, so no question is asked twice at one time."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self._index = nvml, index
        self._held: tuple[float, set[int] | None] = (float("-inf"), None)
        self._quick: tuple[float, Device] = (float("-inf"), Device())
        self._slow: tuple[float, Device] = (float("-inf"), Device())
        self._handle: Any = None
        self._events: Any = None
        self._opened = False
        self._xid: int | None = None
        self._xids = 0
        # Two samples of the performance counters, the newest last; None: it has none that can be read.
        self._activity: list[Any] | None = []

    def holders(self, now: float) -> set[int] | None:
        """Return the processes with a context on it; None if that is not known.  Raises OSError if it is not there."""
        if now - self._held[0] >= TOGETHER:
            try:
                self._handle = self._nvml.nvmlDeviceGetHandleByIndex(self._index)
            except self._nvml.NVMLError as error:
                raise _as_error(error) from error
            self._open()
            running = self._ask("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2")
            self._held = (now, None if running is None else {process.pid for process in running})
        return self._held[1]

    def read(self, now: float) -> Device | None:
        """Return what it does now, after `holders`; None if it was lost since."""
        try:
            if now - self._slow[0] >= SLOW_EVERY:
                self._slow = (now, self._asked_seldom())
            if now - self._quick[0] >= TOGETHER:
                self._quick = (now, self._asked_often())
        except DeviceLostError:
            return None
        return self._quick[1]

    def samples(self, since: int) -> list[Any] | None:
        """Return the samples of process utilisation after `since`; none if it was idle, None if none is kept."""
        try:
            return list(self._nvml.nvmlDeviceGetProcessUtilization(self._handle, since))
        except self._nvml.NVMLError as error:
            idle = getattr(error, "value", None) == NOT_FOUND  # "no sample since then": idle, not unknown
            return [] if idle else None

    def _open(self) -> None:
        """Begin to count the critical Xid events, once."""
        if self._opened:
            return
        self._opened = True
        events = _ask(self._nvml, ["nvmlEventSetCreate"])
        with contextlib.suppress(AttributeError, self._nvml.NVMLError):  # not supported: the number stays unknown
            self._nvml.nvmlDeviceRegisterEvents(self._handle, XID_EVENT, events)
            self._events = events

    def _asked_often(self) -> Device:
        rates, memory = self._ask("nvmlDeviceGetUtilizationRates"), self._ask("nvmlDeviceGetMemoryInfo")
        power = self._ask("nvmlDeviceGetPowerUsage")
        return replace(
            self._slow[1],
            utilisation=None if rates is None else rates.gpu / PERCENT,
            memory_utilisation=None if rates is None else rates.memory / PERCENT,
            power=None if power is None else power / 1000,
            memory=None if memory is None else memory.used,
        )  # fmt: skip

    def _asked_seldom(self) -> Device:
        name, limit = self._ask("nvmlDeviceGetName"), self._ask("nvmlDeviceGetEnforcedPowerLimit")
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return Device(
            name=name.decode(errors="replace") if isinstance(name, bytes) else name,
            power_limit=None if limit is None else limit / 1000,
            clock=self._ask("nvmlDeviceGetClockInfo", arguments=(SM_CLOCK,)),
            clock_limit=self._ask("nvmlDeviceGetMaxClockInfo", arguments=(SM_CLOCK,)),
            slowed_by=None if reasons is None else slowed_by(reasons),
            ecc_errors=self._ask("nvmlDeviceGetTotalEccErrors", arguments=(UNCORRECTED, SINCE_BOOT)),
            sm_activity=self._sm_activity(),
        )

    def events(self) -> tuple[int | None, int | None]:
        """Return the newest critical Xid event, and how many there were since the first `holders`.  None: not known."""
        with contextlib.suppress(DeviceLostError):
            for _ in range(MOST_EVENTS if self._events is not None else 0):
                event = _ask(self._nvml, ["nvmlEventSetWait"], self._events, 0)  # without an event: a timeout
                if event is None:
                    break
                self._xids, self._xid = self._xids + 1, int(event.eventData)
        return self._xid, None if self._events is None else self._xids

    def _sm_activity(self) -> float | None:
        """Return the share of multiprocessors that worked since the question before, by its counters; Hopper and later.

        (nvml.h, "GPM": two samples of the counters are taken, and the driver makes the figure of both.)
        """
        nvml, samples = self._nvml, self._activity
        if samples is None:
            return None
        try:
            if not samples and not nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                self._activity = None
                return None
            fresh = samples.pop(0) if len(samples) > 1 else nvml.nvmlGpmSampleAlloc()
            nvml.nvmlGpmSampleGet(self._handle, fresh)
            samples.append(fresh)
            if len(samples) == 1:
                return None
            wanted = nvml.c_nvmlGpmMetricsGet_t()
            wanted.version, wanted.numMetrics = 1, 1
            wanted.sample1, wanted.sample2 = samples
            wanted.metrics[0].metricId = SM_UTIL
            found = nvml.nvmlGpmMetricsGet(wanted).metrics[0]
        except (AttributeError, nvml.NVMLError):
            self._activity = None
            return None
        return found.value / PERCENT if found.nvmlReturn == 0 and 0 <= found.value <= PERCENT else None

    def _ask(self, *names: str, arguments: tuple[int, ...] = ()) -> Any:
        return _ask(self._nvml, names, self._handle, *arguments)


def slowed_by(reasons: int) -> tuple[str, ...]:
    """Return as words what keeps the clocks low, of the bits that NVML has for it; that it idles is none of them."""
    words = [word for word, bits in SLOWING.items() if reasons & bits]
    # The bit of the hardware is set too if one of its own reasons is.
    return (*words, "hardware") if reasons & HARDWARE and not reasons & HARDWARE_REASONS else tuple(words)


def _together(readings: Sequence[Device]) -> Device:
    """Return the devices of one run as one reading.

    The busiest says how much works, because one that waits for another is idle; power, memory and errors are summed
    up, and unknown if those of one are; the device with the lowest share of its clock paces all.
    """

    def highest(values: Iterable[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    clocked = [one for one in readings if one.clock is not None and one.clock_limit]
    slowest = min(clocked, key=lambda one: (one.clock or 0) / (one.clock_limit or 1), default=Device())
    reasons = [one.slowed_by for one in readings if one.slowed_by is not None]
    return Device(
        name=next((one.name for one in readings if one.name is not None), None),
        utilisation=highest(one.utilisation for one in readings),
        memory_utilisation=highest(one.memory_utilisation for one in readings),
        sm_activity=highest(one.sm_activity for one in readings),
        power=_sum([one.power for one in readings]),
        power_limit=_sum([one.power_limit for one in readings]),
        memory=_sum([one.memory for one in readings]),
        clock=slowest.clock, clock_limit=slowest.clock_limit,
        slowed_by=tuple(dict.fromkeys(word for words in reasons for word in words)) if reasons else None,
        ecc_errors=_sum([one.ecc_errors for one in readings]),
    )  # fmt: skip


def _sum(values: list[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None


def _count_others(holders: list[set[int] | None], pids: Collection[int]) -> int | None:
    """Return how many processes that are not ours have a context there; None if that is not known.

    In a namespace of its own NVML leaves out the processes that it does not see: then none proves nothing.
    """
    known = [held for held in holders if held is not None]
    others = len(set().union(*known).difference(pids))
    return others if others or (len(known) == len(holders) and sees_all_processes()) else None


@functools.cache
def sees_all_processes() -> bool:
    """Return whether this process is in the namespace of the machine's own pids."""
    with contextlib.suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino == FIRST_NAMESPACE  # noqa: PTH116 - no more is asked
    return False


@functools.cache
def _card(nvml: Any, index: int) -> _Card:
    return _Card(nvml, index)


def _ask(nvml: Any, names: Iterable[str], *arguments: Any) -> Any:
    """Return the answer of the first function that has one; None: this device, driver or binding has none.

    Raises DeviceLostError.
    """
    for name in names:
        try:
            return getattr(nvml, name)(*arguments)
        except nvml.NVMLError as error:
            if getattr(error, "value", None) in LOST:
                raise _as_error(error) from error
        except (AttributeError, getattr(nvml, "NVMLLibraryMismatchError", AttributeError)):
            continue
    return None


def _as_error(error: Exception) -> OSError:
    kind = DeviceLostError if getattr(error, "value", None) in LOST else OSError
    return kind(f"NVML: {error}")


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
