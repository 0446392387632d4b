"""Linux: most is in /proc; py-spy, gdb and the kernel's log if they are installed and permitted.

`maps` takes the process' memory lock and blocks if the process is stuck in the kernel, which is why each
table has its seconds.  py-spy reads without pausing; gdb stops the process for as long as it reads symbols.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from pathlib import Path

from stallguard.core.text import whole_number
from stallguard.host.linux import procfs
from stallguard.host.linux.thread_census import SITES, wait_site
from stallguard.host.types import Table, Tool

THREADS_MAX = 500
FILES_MAX = 1000
MAPS_MAX = 60  # lines of the summary
MAPS_BYTES = 4 << 20
# Without the numbers that identify a device.
GPU_DETAILS = "MEMORY,UTILIZATION,ECC,TEMPERATURE,POWER,CLOCK,PIDS,PERFORMANCE"
GDB = ("-ex", "set pagination off", "-ex", "thread apply all bt 40")


def tables(pid: int) -> tuple[Table, ...]:
    """Return what is read from /proc."""
    return (
        Table("threads", lambda: threads(pid), 1.0, first=True),
        Table("maps", lambda: maps(pid), 3.0),
        Table("files", lambda: files(pid), 2.0),
    )


def tools(pid: int, since: float, _now: float) -> tuple[Tool, ...]:
    """Return the tools that are installed.  `since`: seconds since the epoch."""
    process = str(pid)
    wanted = (
        Tool("py-spy", ("py-spy", "dump", "--nonblocking", "--pid", process), 5),
        Tool("kernel", ("journalctl", "-k", "-n", "300", "--no-pager", f"--since=@{since:.0f}"), 5),
        Tool("kernel-ring", ("dmesg", "--ctime", "--level", "emerg,alert,crit,err,warn"), 2),
        Tool("gpu", ("nvidia-smi",), 5),
        Tool("gpu-details", ("nvidia-smi", "-q", "-d", GPU_DETAILS), 5),
        Tool("gdb", ("gdb", "-nx", "-batch", "-p", process, *GDB), 60, 2 << 20, deep=True),
    )
    found = ((tool, shutil.which(tool.argv[0])) for tool in wanted)
    return tuple(tool._replace(argv=(path, *tool.argv[1:])) for tool, path in found if path)


def main_wait(pid: int) -> str:
    """Return where the main thread waits (see thread_census.wait_site); empty if that is not known."""
    stat, call = procfs.stat(pid), procfs.slurp(f"/proc/{pid}/syscall", 1 << 14)
    return wait_site(stat.state, call) if stat and call else ""


def report_places() -> tuple[Path, ...]:
    """Return nothing: Linux has no such reports."""
    return ()


def threads(pid: int) -> str:
    """Return a line a thread: id, state, CPU seconds, system call, wait channel, name; then the kernel stacks."""
    ids = sorted(procfs.threads(pid), key=int)[:THREADS_MAX]
    rows = []
    for thread in ids:
        stat = procfs.stat(pid, thread)
        if stat is not None:
            where = _text(pid, thread, "wchan").strip("\0\n") or "-"
            number = _text(pid, thread, "syscall").partition(" ")[0].strip()
            known = whole_number(number)
            call = (number or "?") if known is None else SITES.get(known, number)
            rows.append(f"{thread:>8}  {stat.state:<15}  {stat.own_cpu:>9.2f}  {call:<10}  {where:<28}  {stat.name}")
    stacks = [f"\n{thread}:\n{text}" for thread in ids if (text := _text(pid, thread, "stack").rstrip())]
    head = f"{'thread':>8}  {'state':<15}  {'cpu s':>9}  {'call':<10}  {'waits in':<28}  name"
    return "\n".join([head, *rows, *stacks]) + "\n"


def _text(pid: int, thread: str, name: str) -> str:
    data = procfs.slurp(f"/proc/{pid}/task/{thread}/{name}", 1 << 14)
    return (data or b"").decode(errors="surrogateescape")


def maps(pid: int) -> str:
    """Return smaps_rollup, and the address space by what is mapped, largest first."""
    rollup = procfs.slurp(f"/proc/{pid}/smaps_rollup", 1 << 14) or b""
    with Path(f"/proc/{pid}/maps").open("rb") as file:  # larger than a page: needs more than one read
        sizes = summed(file.read(MAPS_BYTES).decode(errors="replace"))
    rows = [f"{size / 1e6:>12.1f} MB  {name}" for name, size in sizes.most_common(MAPS_MAX)]
    return "\n".join([rollup.decode(errors="replace"), *rows]) + "\n"


def summed(maps: str) -> Counter[str]:
    """Return bytes of address space by name, from a /proc/PID/maps (proc_pid_maps(5))."""
    sizes: Counter[str] = Counter()
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        begin, _, end = fields[0].partition("-") if fields else ("", "", "")
        with contextlib.suppress(ValueError):  # cut, or of another form
            sizes[fields[5] if len(fields) > 5 else "[anonymous]"] += int(end, 16) - int(begin, 16)  # noqa: PLR2004
    return sizes


def files(pid: int) -> str:
    """Return the open descriptors and where they lead; links only, so a dead file server cannot block the collector."""
    lines = []
    for number in sorted(os.listdir(f"/proc/{pid}/fd"), key=int)[:FILES_MAX]:  # noqa: PTH208 - bare names are wanted
        with contextlib.suppress(OSError):  # closed since
            where = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - no object for each of a thousand
            lines.append(f"{number:>5} -> {where}\n")
    return "".join(lines)
