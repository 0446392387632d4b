"""Decoders of what the operating system and its tools print: launchctl, ioreg, pmset, vm_stat, /proc, cgroups."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from fuzzing.targets import Target, recorded, text
from stallguard.agent import launchctl_answers
from stallguard.core.text import whole_number
from stallguard.host.darwin import parsers

PROC_STAT = b"4321 (python (x) y) S 1 4321 4321 0 -1 4194304 99 0 3 0 700 80 0 0 20 0 17 0 12345 987654321 6543 9999999"
MEMINFO = b"MemTotal:       131981992 kB\nMemAvailable:   120000000 kB\nSwapTotal: 0 kB\nHugePages_Total: 0\n"


def targets() -> Iterator[Target]:
    """Yield the decoders of this kind; those of Linux only there, because they are not imported elsewhere."""
    yield from _launchd()
    yield from _macos()
    if sys.platform != "darwin":
        yield from _linux()


def _launchd() -> Iterator[Target]:
    def printed(word: str) -> Any:
        found = launchctl_answers.parse(word)
        return found, launchctl_answers.ending(found)

    yield Target("launchctl print", recorded("launchctl_print_*.txt"), text(printed))
    disabled = b'\tdisabled services = {\n\t\t"com.x.y" => disabled\n\t\t"com.x.z" => enabled\n\t}\n'
    yield Target("launchctl print-disabled", [disabled], text(launchctl_answers.parse_disabled))
    errors = recorded("launchctl_errors*", "launchctl_print_not_found*")
    yield Target("launchctl errors", errors, text(lambda word: launchctl_answers.answer(5, word)))


def _macos() -> Iterator[Target]:
    yield Target("ioreg, GPU", recorded("ioreg_io*", "ioreg_perf*"), text(parsers.accelerators))
    yield Target("ioreg, clients", recorded("ioreg_agx*"), text(parsers.clients))
    lid = b'+-o IOPMrootDomain  <class IOPMrootDomain>\n    {\n      "AppleClamshellState" = No\n    }\n'
    yield Target("ioreg, lid", [lid], text(parsers.lid_closed))

    def sysctl(word: str) -> Any:
        found = parsers.sysctl(word)
        return [(whole_number(value), parsers.swap_used(value)) for value in found.values()]

    yield Target("sysctl", recorded("sysctl_*"), text(sysctl))

    def counted(word: str) -> Any:
        pages = parsers.pages(word)
        return pages and pages.bytes("Pages free", "Pages active")

    yield Target("vm_stat, memory_pressure", recorded("vm_stat*", "memory_pressure*"), text(counted))
    yield Target("pmset -g therm", recorded("pmset_g_therm*"), text(parsers.thermal))
    yield Target("pmset -g ps", [b"Now drawing from 'Battery Power'\n -InternalBattery-0\t95%"], text(parsers.power))
    yield Target("pmset -g", recorded("pmset_g_*"), text(parsers.sleep))
    wakes = b"Scheduled power events:\n [0]  wake at 03/07/2026 05:55:00 by 'pmset'\nRepeating:\n  wake at 5:55AM\n"
    yield Target("pmset -g sched", [wakes], text(parsers.wakes))
    yield Target("ps (macOS)", recorded("ps_*"), text(parsers.ps))
    yield Target("system_profiler", recorded("system_profiler*"), text(parsers.displays))


def _linux() -> Iterator[Target]:
    from stallguard.host.linux import evidence_tools, limits, machine, procfs, thread_census

    yield Target("/proc/PID/stat", [PROC_STAT + b" 0" * 20], procfs.parse_stat)
    yield Target("/proc/PID/io", [b"rchar: 1\nwchar: 2\nsyscr: 3\nread_bytes: 4\nwrite_bytes: 5\n"], procfs.parse_io)
    yield Target("/proc/meminfo, status", [MEMINFO, b"Name:\tx\nVmRSS:\t  12 kB\nRssAnon: 3 kB\n"], procfs.sizes)
    rlimits = b"Limit                     Soft Limit  Hard\nMax data size             1000        unlimited\n"
    yield Target("/proc/PID/limits", [rlimits], text(limits.parse_limits))
    yield Target(
        "/proc/PID/syscall",
        [b"202 0x7f 0x80 0x0 0x0 0x0 0x0 0x7ffd 0x7f12", b"running"],
        lambda data: thread_census.wait_site("S", data),
    )
    tcp = b"  sl  local rem   st\n   0: 0100007F:1F90 0200000A:C350 01 0:0 00:0 0  1000        0 12345 1\n"
    yield Target("/proc/net/tcp", [tcp], thread_census.remote_sockets)
    yield Target(
        "/proc/mounts", [b"srv:/x /mnt/nfs nfs4 rw 0 0\n/dev/sda1 / ext4 rw 0 0\n"], thread_census.network_mounts
    )
    maps = b"7f00-7f10 r-xp 00000000 08:01 123 /lib/libc.so.6\n7f20-7f30 rw-p 00000000 00:00 0 [heap]\n"
    yield Target("/proc/PID/maps", [maps], text(evidence_tools.summed))
    yield Target("/proc/stat", [b"cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4\n"], machine.parse_times)
    pressure = b"some avg10=0.00 avg60=0.10 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n"
    yield Target("memory.pressure", [pressure], limits.parse_pressure)
    groups = b"0::/user.slice/x.scope\n4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n"
    yield Target("/proc/PID/cgroup", [groups], text(lambda word: limits.parse_groups(word, "cpu")))
    yield Target("cpu.max", [b"100000 100000", b"max 100000", b"-1"], limits.has_quota)
    yield Target(
        "logind.conf",
        [b"[Login]\nIdleAction=suspend\nIdleActionSec=20min 5s\n"],
        text(lambda word: machine.parse_logind([word])),
    )
