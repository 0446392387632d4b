"""The machine on macOS: its load, memory, GPU and settings, and the end of a process that was killed for memory.

Small tools are run, and host.darwin.parsers parses their output.  This module must not judge, and must not run a tool
more often than a sensor reads.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from stallguard.core.readings import Device, Machine, Memory
from stallguard.core.text import whole_number
from stallguard.host import process_end, tool
from stallguard.host.darwin import libproc
from stallguard.host.darwin import parsers as parse
from stallguard.host.types import ListedGpu, Preferences, Sleep

# `ioreg -r -c` walks the whole registry: tens of milliseconds.  -w 0 keeps it from cutting lines.
IOREG = ["/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0"]
SYSCTL, VM_STAT, PMSET = "/usr/sbin/sysctl", ["/usr/bin/vm_stat"], ["/usr/bin/pmset", "-g"]
MEMORY_PRESSURE = ["/usr/bin/memory_pressure"]
# Sorted by CPU, names without paths.  ps is set-user-id, so it lists the processes of all users.
PS = ["/bin/ps", "-Acr", "-o", "pid,stat,%cpu,comm"]
# kern.memorystatus_vm_pressure_level is masked: `sysctl -a` hides it, read by name it is there.
MEMORY_NAMES = (
    "hw.memsize",
    "kern.memorystatus_vm_pressure_level",
    "vm.swapusage",
    "vm.compressor_bytes_used",
    "vm.compressor_segment_limit",
    "vm.compressor_segment_buffer_size",
)
FACT_NAMES = ("hw.model", "hw.memsize", "hw.ncpu", "machdep.cpu.brand_string", "sysctl.proc_translated")
PATIENCE = 10.0  # seconds until a tool is killed; its sensor counts as blocked long before
BUSY, TOP = 0.05, 3  # of a core; names
SLOW_EVERY = 30.0  # seconds between two readings of what changes rarely
THERMAL = {0: "nominal", 1: "fair", 2: "serious"}  # moderate, heavy; above: trapping, sleeping

PROFILER = ["/usr/sbin/system_profiler", "SPDisplaysDataType", "-json"]  # 1 to 3 s


def _said(argv: list[str], seconds: float = PATIENCE) -> str:
    """Return what a tool prints, "" if it fails.  Raises TimeoutError."""
    return tool.output(argv, seconds) or ""


def _sysctl(names: tuple[str, ...]) -> dict[str, str]:
    return parse.sysctl(tool.output([SYSCTL, *names], PATIENCE, lenient=True) or "")


def memory(_pid: int | None = None) -> Memory:
    """Return the machine's memory.  macOS has no memory limit of a process that could be read."""
    return memory_reading(_sysctl(MEMORY_NAMES), parse.pages(_said(VM_STAT) or _said(MEMORY_PRESSURE)))


def memory_reading(sysctl: Mapping[str, str], pages: parse.Pages | None) -> Memory:
    """Return the reading that sysctl's values and the page counts make.

    The compressor keeps pages in segments of 64 KiB, in memory and in swap files, and has a limit for the number of all
    of them [xnu osfmk/vm/vm_compressor.c, vm_compressor_out_of_space].  At that limit the machine freezes, and the
    watchdog's panic says "100% of segments limit (BAD)", usually with 65 to 78 swap files.  A Mac of 64 GiB has
    1,629,615 segments.  Their number cannot be read; half-empty segments make it higher than what they hold.
    """
    limit, size = (whole_number(sysctl.get(f"vm.compressor_segment_{name}")) for name in ("limit", "buffer_size"))
    swap_used = parse.swap_used(sysctl.get("vm.swapusage"))
    occupied = pages.bytes("Pages occupied by compressor") if pages else None
    return Memory(
        total=whole_number(sysctl.get("hw.memsize")),
        available=pages.bytes("Pages free", "Pages inactive", "Pages speculative") if pages else None,
        pressure=parse.PRESSURE.get(sysctl.get("kern.memorystatus_vm_pressure_level", "")),
        swap_used=swap_used,
        swap_outs=pages.bytes("Swapouts") if pages else None,
        compressed=whole_number(sysctl.get("vm.compressor_bytes_used")),
        paged=None if swap_used is None or occupied is None else swap_used + occupied,
        paged_limit=None if limit is None or size is None else limit * size,
    )


def has_gpu() -> bool | None:
    """Return whether the machine has a GPU that computes; None if the registry cannot be read."""
    try:
        text = tool.output([*IOREG, "-c", "IOAccelerator"], PATIENCE)
    except TimeoutError:  # the driver hangs
        return None
    # A virtual machine's shows a screen and cannot compute: tensorflow-metal hangs on it.
    return None if text is None else any("Paravirt" not in (gpu.kind or "") for gpu in parse.accelerators(text))


def cuda_cards() -> int | None:
    """Return how many cards CUDA has: none; its last release for macOS was 10.2, for macOS 10.13."""
    return 0


def has_battery() -> bool | None:
    """Return whether the machine has a battery; None if the system does not say."""
    return parse.has_battery(_said([*PMSET, "ps"]))


class AppleGpu:
    """The Mac's GPU; keeps its clients' counters, because moving is a difference."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet: the first reading cannot say whether anything moved.  `clock`: seconds."""
        self._clock = clock
        self._before: dict[str, parse.Client] | None = None
        self._read_at = 0.0

    def read(self, pids: Collection[int], family: Collection[int] = ()) -> Device | None:
        """Return the GPU's reading, with what the processes `pids` do on it; None if ioreg shows no GPU.

        `family`: further processes of the run, which are no others.
        """
        gpus = parse.accelerators(_said([*IOREG, "-c", "IOAccelerator"]))
        if not gpus:
            return None
        return self.reading(gpus, parse.clients(_said([*IOREG, "-c", "AGXDeviceUserClient"])), pids, family)

    def reading(
        self, gpus: list[parse.Accelerator], clients: list[parse.Client], pids: Collection[int],
        family: Collection[int] = (),
    ) -> Device:  # fmt: skip
        """Return the reading that the registry's nodes make; of several GPUs, Apple's own."""
        gpu = max(gpus, key=lambda one: ((one.kind or "").startswith("AGX"), one.utilisation or 0.0))
        before, self._before = self._before, {client.id: client for client in clients}
        now = self._clock()
        passed, self._read_at = now - self._read_at, now
        ours = [client for client in clients if client.pid in pids]
        moved: bool | None = None
        others: int | None = None
        others_compute: float | None = None
        if before is not None and clients:
            if ours:
                moves = [_moved(before.get(client.id), client) for client in ours]
                moved = True if any(moves) else None if None in moves else False
            # The window server and other programs hold the GPU at all times: those that computed on it count.
            strangers = [client for client in clients if client.pid not in pids and client.pid not in family]
            moves = [_moved(before.get(client.id), client) for client in strangers]
            computed = {client.pid for client, move in zip(strangers, moves, strict=True) if move}
            others = len(computed) or (None if None in moves else 0)
            seconds = sum(_computed(before.get(client.id), client) for client in strangers)
            others_compute = min(1.0, seconds / passed) if passed > 0.0 else None
        return Device(
            name=gpu.model or gpu.kind,
            utilisation=gpu.utilisation,
            moved=moved,
            memory=gpu.memory,
            recoveries=gpu.recoveries,
            used_by_run=bool(ours) if clients else None,
            others=others,
            others_compute=others_compute,
        )


def _computed(then: parse.Client | None, now: parse.Client) -> float:
    """Return the seconds for which a client is known to have computed since it was seen before; 0 if none are known.

    So the sum of all is the least that they computed: what is missing in it can be of any program.
    """
    if then is None or then.gpu_time is None or now.gpu_time is None:
        return 0.0
    return max(0, now.gpu_time - then.gpu_time) / 1e9


def _moved(then: parse.Client | None, now: parse.Client) -> bool | None:
    """Return whether a client computed since it was seen before; None if its work is not counted.

    Each is compared with itself: one that came or went makes the sum of all no measure.
    """
    if now.gpu_time is None or now.submitted is None:
        return None
    if then is None or then.gpu_time is None or then.submitted is None:
        return now.submitted > 0
    return now.gpu_time > then.gpu_time or now.submitted > then.submitted


class DarwinMachineWatch:
    """Reads the machine; keeps the last counters, because idle is a difference, and what changes rarely."""

    def __init__(self) -> None:
        """Know nothing yet: the first reading has no idle share."""
        self._times: tuple[float, float] | None = None
        self._slow: dict[str, Any] = {}
        self._slow_at = float("-inf")

    def read(self, now: float, ours: Collection[int], asleep: float) -> Machine:
        """Return the machine's reading.

        `now`: monotonic seconds; `ours`: pids that are not "others"; `asleep`: what Clock.asleep says.
        """
        if now - self._slow_at >= SLOW_EVERY:
            heat = parse.thermal(_said([*PMSET, "therm"]))
            settings = sleep_settings()
            self._slow = {
                "power": parse.power(_said([*PMSET, "ps"])),
                "thermal": thermal_level(libproc.thermal_pressure(), heat.level),
                "cpu_limit": heat.cpu_limit,
                "low_power": settings.low_power if settings else None,
                "lid_closed": parse.lid_closed(_said([*IOREG, "-k", "AppleClamshellState"])),
            }
            self._slow_at = now
        return Machine(
            idle=self._idle(),
            busiest=busiest(parse.ps(_said(PS)), ours),
            cores=os.cpu_count(),
            load=os.getloadavg()[0],
            asleep=round(asleep, 3),
            **self._slow,
        )

    def _idle(self) -> float | None:
        import psutil

        from stallguard.host.psutil_errors import ERRORS

        try:
            times = psutil.cpu_times()
        except ERRORS:
            return None
        before, self._times = self._times, (times.idle, sum(times))
        if before is None:
            return None
        total = self._times[1] - before[1]
        return round(min(1.0, max(0.0, (self._times[0] - before[0]) / total)), 4) if total > 0 else None


def busiest(rows: list[parse.ProcessRow], ours: Collection[int]) -> tuple[str, ...]:
    """Return the names of up to three busy processes that are not ours, the busiest first."""
    others = [row for row in rows if row.pid not in ours and (row.cpu or 0.0) >= BUSY and row.name != "ps"]
    others.sort(key=lambda row: row.cpu or 0.0, reverse=True)
    return tuple(dict.fromkeys(row.name for row in others))[:TOP]


def thermal_level(pressure: int | None, warned: str | None) -> str | None:
    """Return the thermal state: the pressure level if notifyd has it, else pmset's warning."""
    return warned if pressure is None else THERMAL.get(pressure, "critical")


def facts() -> dict[str, str | int | bool | None]:
    """Return what does not change while the machine runs; None: not known here."""
    return facts_from(_sysctl(FACT_NAMES), parse.sysctl(_said(["/usr/bin/sw_vers"])))


def facts_from(sysctl: Mapping[str, str], version: Mapping[str, str]) -> dict[str, str | int | bool | None]:
    """Return the facts that sysctl and sw_vers make."""
    # 1: this Python is Intel code under Rosetta; absent on Intel.
    translated = sysctl.get("sysctl.proc_translated")
    return {
        "system": "macOS",
        "version": version.get("ProductVersion"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "model": sysctl.get("hw.model"),
        "chip": sysctl.get("machdep.cpu.brand_string"),
        "cores": whole_number(sysctl.get("hw.ncpu")) or os.cpu_count(),
        "memory": whole_number(sysctl.get("hw.memsize")),
        "rosetta": None if translated is None else translated == "1",
        "python": sys.version.split()[0],
    }


class JetsamWatch:
    """Says, after the end of a process, whether the system killed it for memory."""

    def __init__(self, pid: int) -> None:
        """Begin to watch `pid`, which must still live (the kernel refuses even a zombie)."""
        self._answer: bool | None = None
        self._watch: process_end.ExitWatch | None = None
        with contextlib.suppress(OSError):  # it has ended: nothing will be known
            self._watch = process_end.ExitWatch(pid, select)

    def look(self) -> None:
        """Nothing changes while it lives."""

    def killed(self) -> bool | None:
        """Return whether jetsam killed it; None if the end was not seen."""
        if self._watch is not None and self._answer is None:
            data = self._watch.take(0)
            self._answer = None if data is None else process_end.was_memory(data)
        return self._answer

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()
        self._watch = None


def sleep_settings() -> Sleep | None:
    """Return the settings in use; None if pmset does not answer."""
    with contextlib.suppress(TimeoutError):
        return parse.sleep(_said(PMSET, 5.0))
    return None


def preferences() -> Preferences:
    """Ask two tools for all of it.  Takes up to some seconds: not while a run goes on."""
    return Preferences(sleep_settings(), listed_gpus(), daily_wakes())


def daily_wakes() -> tuple[str, ...]:
    """Return the times of day at which the Mac wakes each day; none if pmset does not answer."""
    with contextlib.suppress(TimeoutError):
        return parse.wakes(_said([*PMSET, "sched"], 5.0))
    return ()


def listed_gpus() -> tuple[ListedGpu, ...] | None:
    """Return the GPUs; None if system_profiler does not answer."""
    with contextlib.suppress(TimeoutError):
        return parse.displays(_said(PROFILER, 15.0))
    return None
