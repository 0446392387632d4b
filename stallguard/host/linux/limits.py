"""Memory on Linux, the limits that hold for a process, and whether one was killed for memory.

Limits are the control group's (version 1 or 2, every level up to the root) and the process' own rlimits; the
one that is nearest to full is returned.  Of a group, pages of files that the kernel drops when it needs them do not
count as used: a training that reads its data fills every group with them.

A quota of a control group limits processor time (cgroups(7), Documentation/scheduler/sched-bwc.rst): a container with
`--cpus=2`, or a service with CPUQuota=, gets that much of each period and then stands still.

This module must not judge how near is too near.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from stallguard.core.readings import Memory
from stallguard.core.text import whole_number
from stallguard.host.linux import procfs
from stallguard.host.linux.procfs import slurp

CGROUPS = "/sys/fs/cgroup"
NO_LIMIT = 1 << 60  # version 1 says 9223372036854771712 for "none"

V2 = 2
# Of cpu.stat, by version of the hierarchy: the counter, and the seconds of its unit.
_COUNTERS = {V2: ("throttled_usec", 1e-6), 1: ("throttled_time", 1e-9)}


def memory(pid: int | None = None) -> Memory:
    """Return the machine's memory, with the limits of `pid` or of ourselves."""
    info = procfs.sizes(slurp("/proc/meminfo", 1 << 14) or b"")
    swap, swap_free = info.get("SwapTotal"), info.get("SwapFree")
    outs = _counter("/proc/vmstat", b"pswpout")
    tight = tightest(limits(pid))
    stalls = parse_pressure(slurp("/proc/pressure/memory") or b"")
    swap_used = None if swap is None or swap_free is None else swap - swap_free
    return Memory(
        total=info.get("MemTotal"),
        available=info.get("MemAvailable"),
        swap_used=swap_used,
        paged=swap_used,
        paged_limit=swap,
        swap_outs=None if outs is None else outs * procfs.PAGE,
        compressed=info.get("Zswap"),
        stall_some=stalls.get("some"),
        stall_full=stalls.get("full"),
        limit=tight.most if tight else None,
        limit_used=tight.used if tight else None,
        oom_kills=oom_kills(group_of(pid)),
    )


def _counter(path: str, name: bytes) -> int | None:
    for line in (slurp(path, 1 << 16) or b"").splitlines():
        word, _, value = line.partition(b" ")
        if word == name:
            return whole_number(value.strip())
    return None


def parse_pressure(text: bytes) -> dict[str, float]:
    """Return avg10 of the `some` and `full` lines, 0..1 (Documentation/accounting/psi.rst)."""
    found = {}
    for line in text.decode("ascii", "replace").splitlines():
        kind, _, rest = line.partition(" ")
        with contextlib.suppress(ValueError, KeyError):
            fields = dict(field.split("=", 1) for field in rest.split())
            found[kind] = float(fields["avg10"]) / 100
    return found


class Limit(NamedTuple):
    """A limit in force, in bytes, and how much of it is used for good."""

    most: int
    used: int


def tightest(known: list[Limit]) -> Limit | None:
    """Return the limit that is nearest to full; None if there is none."""
    return max(known, key=lambda limit: limit.used / limit.most, default=None)


def limits(pid: int | None) -> list[Limit]:
    """Return all limits on the memory of `pid` (this process if None)."""
    known = _group_limits(group_of(pid))
    soft = parse_limits((slurp(f"/proc/{pid or 'self'}/limits") or b"").decode("ascii", "replace"))
    if soft:
        sizes = procfs.sizes(slurp(f"/proc/{pid or 'self'}/status") or b"")
        known += [
            Limit(most, sizes[_RLIMITS[name]]) for name, most in soft.items() if _RLIMITS[name] in sizes
        ]
    return known


class ControlGroup(NamedTuple):
    """A control group that accounts for memory: where it is, and which file names it has."""

    path: str
    version: int


def group_of(pid: int | None) -> ControlGroup | None:
    """Return the memory control group of `pid` (this process if None)."""
    text = slurp(f"/proc/{pid or 'self'}/cgroup") or b""
    return parse_group(text.decode(errors="replace"), CGROUPS)


def parse_group(text: str, mount: str) -> ControlGroup | None:
    """Return the group named in a /proc/PID/cgroup (cgroups(7)); version 1's memory hierarchy comes first."""
    hierarchies = [line.split(":", 2)[1:] for line in text.splitlines()]
    for version, prefix, wanted in ((1, "/memory", "memory"), (2, "", "")):
        for hierarchy in hierarchies:
            if len(hierarchy) > 1 and wanted in hierarchy[0].split(","):
                return ControlGroup(f"{mount}{prefix}{hierarchy[1]}".rstrip("/"), version)
    return None


_FILES = {  # version -> limit, usage, file with the line `oom_kill N`
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
    2: ("memory.max", "memory.current", "memory.events"),
}


def _group_limits(group: ControlGroup | None) -> list[Limit]:
    if group is None:
        return []
    limit_file, usage_file, _ = _FILES[group.version]
    root = f"{CGROUPS}/memory" if group.version == 1 else CGROUPS
    known = []
    path = group.path
    while path.startswith(root):  # every level above has its own limit, and each holds
        most, used = _number(f"{path}/{limit_file}"), _number(f"{path}/{usage_file}")
        if most is not None and used is not None and 0 < most < NO_LIMIT:
            cached = parse_file_pages(slurp(f"{path}/memory.stat", 1 << 14) or b"")
            known.append(Limit(most, max(0, used - cached)))
        path = path.rpartition("/")[0]
    return known


def parse_file_pages(stat: bytes) -> int:
    """Return the bytes of file pages in a memory.stat, which the kernel drops when it needs them.

    Version 1 has the sums with the groups below under names of their own, version 2 has no other.  Shared memory is
    not among them: the kernel counts it as anonymous.
    """
    lines = (line.split(b" ") for line in stat.splitlines())
    sizes = {words[0]: whole_number(words[1]) or 0 for words in lines if len(words) == 2}  # noqa: PLR2004 - name, value
    names = (b"inactive_file", b"active_file")
    return sum(sizes.get(b"total_" + name, sizes.get(name, 0)) for name in names)


def _number(path: str) -> int | None:
    text = (slurp(path, 64) or b"").strip()
    return whole_number(text)  # "max" is no number


def oom_kills(group: ControlGroup | None) -> int | None:
    """Return how many processes of the group the kernel has killed for memory, under any limit."""
    return None if group is None else _counter(f"{group.path}/{_FILES[group.version][2]}", b"oom_kill")


# The rlimits that end a training, and the line of /proc/PID/status that fills each (proc_pid_limits(5)).
_RLIMITS = {"Max address space": "VmSize", "Max data size": "VmData"}


def parse_limits(text: str) -> dict[str, int]:
    """Return the soft rlimits on memory, in bytes; those that are unlimited are left out."""
    found = {}
    for line in text.splitlines():
        name, soft = line[:26].strip(), line[26:].split()[:1]
        if name in _RLIMITS and soft and whole_number(soft[0]):
            found[name] = whole_number(soft[0]) or 0
    return found


class OomWatch:
    """Says, after the end of a process, whether the kernel killed it for memory."""

    def __init__(self, pid: int) -> None:
        """Begin to watch `pid`, which must still live."""
        self._pid = pid
        self._machine = _counter("/proc/vmstat", b"oom_kill")
        self._group = group_of(pid)
        self._before = oom_kills(self._group)

    def look(self) -> None:
        """Notice that the process was moved to another control group; call now and then while it lives."""
        group = group_of(self._pid)
        if group is not None and group != self._group:
            self._group, self._before = group, oom_kills(group)

    def killed(self) -> bool | None:
        """Return whether the kernel has killed for memory in its group; None if that cannot be known.

        The group's count and the machine's both grow with each kill (oom_kill in memory.events,
        memory.oom_control and vmstat).  The kernel's log would name the victim, but a user cannot read it.
        """
        after = oom_kills(self._group)
        if after is not None and self._before is not None:
            return after > self._before
        machine = _counter("/proc/vmstat", b"oom_kill")
        if machine is None or self._machine is None:
            return None
        return False if machine == self._machine else None  # a process was killed; perhaps not ours

    def close(self) -> None:
        """Nothing is held here."""


def throttled(pid: int | None) -> float | None:
    """Return the seconds for which quotas have held back the group of `pid`; None if no quota holds for it."""
    groups = parse_groups((slurp(f"/proc/{pid or 'self'}/cgroup") or b"").decode(errors="replace"))
    for version, group in groups:
        found, path = [], group
        root = f"{CGROUPS}/{group[len(CGROUPS) + 1 :].partition('/')[0]}" if version == 1 else CGROUPS
        while path.startswith(root):  # a quota of each level above holds too
            if has_quota(slurp(f"{path}/{'cpu.max' if version == V2 else 'cpu.cfs_quota_us'}") or b""):
                found.append(parse_throttled(slurp(f"{path}/cpu.stat") or b"", version))
            path = path.rpartition("/")[0]
        known = [seconds for seconds in found if seconds is not None]
        if known:
            return max(known)
    return None


def parse_groups(text: str, mount: str = CGROUPS) -> list[tuple[int, str]]:
    """Return the version and the directory of the groups in a /proc/PID/cgroup that can have a quota."""
    found = []
    for line in text.splitlines():
        if line.count(":") < 2:  # noqa: PLR2004 - number, controllers, path
            continue
        _, names, path = line.split(":", 2)
        if not names:
            found.append((V2, f"{mount}{path}".rstrip("/")))
        elif "cpu" in names.split(","):
            found.append((1, f"{mount}/{names}{path}".rstrip("/")))
    return found


def has_quota(text: bytes) -> bool:
    """Return whether the content of a cpu.max ("max 100000") or a cpu.cfs_quota_us ("-1") is a limit."""
    first = text.split()[:1]
    return bool(first) and first[0].isdigit()


def parse_throttled(text: bytes, version: int) -> float | None:
    """Return the seconds in a cpu.stat for which the group was held back."""
    name, unit = _COUNTERS[version]
    for line in text.splitlines():
        key, _, value = line.partition(b" ")
        count = whole_number(value.strip())
        if key == name.encode() and count is not None:
            return round(count * unit, 4)
    return None
