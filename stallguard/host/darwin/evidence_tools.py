"""macOS: all evidence comes from tools that need no root for the user's own processes.

None of them calls task_for_pid from Python (psutil's threads() and memory_full_info() do, and can block for ever).
vmmap and footprint stop the process while they walk it, half a minute at 80 GB: deep only.
"""

from __future__ import annotations

from pathlib import Path

from stallguard.host.types import Table, Tool

# `sample` looks each 10 ms for one second: 100 looks are enough to see a thread that stands, and the process is stopped
# for a tenth of the time that its default (1 ms) takes; the whole evidence has 10 s (collectors.BUDGET).
LOG_MAX = 60  # minutes of the unified log; a longer slice takes minutes to read
# The text is looked at only in what a process has written that matters: the rest of the log is most of the work.
PREDICATE = (
    '(process == "kernel" AND (eventMessage CONTAINS "GPURestart" OR eventMessage CONTAINS "signalHardwareError" '
    'OR eventMessage CONTAINS "memorystatus")) OR (processID == {pid} AND eventMessage CONTAINS "IOGPU")'
)
# sysctl can end at the first name that it does not know, so one that not every system has is the last: macOS 13 has no
# iogpu.wired_limit_mb.
MEMORY = (
    "kern.memorystatus_vm_pressure_level", "kern.memorystatus_level", "vm.swapusage", "vm.compressor_bytes_used",
    "vm.compressor_segment_limit", "vm.compressor_segment_buffer_size", "vm.loadavg", "hw.memsize", "hw.model",
    "machdep.cpu.brand_string", "iogpu.wired_limit_mb",
)  # fmt: skip


def tables(_pid: int) -> tuple[Table, ...]:
    """Return nothing: there is no /proc."""
    return ()


def tools(pid: int, since: float, now: float) -> tuple[Tool, ...]:
    """Return the tools.  `since`, `now`: seconds since the epoch, what the logs are wanted for."""
    process, minutes = str(pid), str(min(LOG_MAX, max(1, round((now - since) / 60))))
    log = ("/usr/bin/log", "show", "--last", f"{minutes}m", "--style", "compact", "--predicate")
    return (
        Tool("sample", ("/usr/bin/sample", process, "1", "10", "-mayDie", "-file", "/dev/stdout"), 9, 2 << 20),
        Tool("threads", ("/bin/ps", "-M", "-p", process), 3),
        Tool("gpu", ("/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"), 3),
        Tool("gpu-clients", ("/usr/sbin/ioreg", "-r", "-d", "1", "-w", "0", "-c", "AGXDeviceUserClient"), 3),
        Tool("memory", ("/usr/sbin/sysctl", *MEMORY), 2),
        Tool("vm", ("/usr/bin/vm_stat",), 2),
        Tool("files", ("/usr/sbin/lsof", "-n", "-P", "-w", "-p", process), 5),
        Tool("displays", ("/usr/sbin/system_profiler", "SPDisplaysDataType", "-json"), 5),
        Tool("system", ("/usr/bin/sw_vers",), 2),
        Tool("log", (*log, PREDICATE.format(pid=pid)), 60, 1 << 20, outlasts=True),
        Tool("maps", ("/usr/bin/vmmap", "-summary", process), 30, deep=True),
        Tool("footprint", ("/usr/bin/footprint", process), 30, deep=True),
    )  # fmt: skip


def main_wait(_pid: int) -> str:
    """Return nothing: `sample` has it."""
    return ""


def report_places() -> tuple[Path, ...]:
    """Return the directories where the system keeps its crash, GPU restart and jetsam reports."""
    machine = Path("/Library/Logs/DiagnosticReports")
    return (machine, machine / "Retired", Path.home() / "Library/Logs/DiagnosticReports")
