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
from collections.abc import Iterator
from typing import NamedTuple

from stallguard.core.readings import Memory
from stallguard.core.text import whole_number
from stallguard.host.linux import procfs
from stallguard.host.linux.procfs import slurp

CGROUPS = "/sys/fs/cgroup"
NO_LIMIT = 1 << 60  # version 1 says 9223372036854771712 for "none"


class GroupFiles(NamedTuple):
    """The names of a group's files; of cpu.stat, the counter of the time held back and the seconds of its unit."""

    most: str
    used: str
    events: str  # with the line `oom_kill N`
    quota: str
    counter: bytes
    unit: float


_FILES = {  # by version of the hierarchy
    1: GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "cpu.cfs_quota_us",
                  b"throttled_time", 1e-9),
    2: GroupFiles("memory.max", "memory.current", "memory.events", "cpu.max", b"throttled_usec", 1e-6),
}  # fmt: skip


def memory(pid: int | None = None) -> Memory:
    """Return the machine's memory, with the limits of `pid` or of ourselves."""
    info = procfs.sizes(slurp("/proc/meminfo", 1 << 14) or b"")
    swap, swap_free = info.get("SwapTotal"), info.get("SwapFree")
    outs = _counter("/proc/vmstat", b"pswpout")
    tight = tightest(limits(pid))
    stalls = parse_pressure(slurp("/proc/pressure/memory") or b"")
    swap_used = None if swap is None or swap_free is None else swap - swap_free
    group = group_of(pid)
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
        oom_kills=oom_kills(group),
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
        known += [Limit(most, sizes[_RLIMITS[name]]) for name, most in soft.items() if _RLIMITS[name] in sizes]
    return known


class ControlGroup(NamedTuple):
    """A control group: where it is, and the version of its hierarchy, which says how its files are named."""

    path: str
    version: int

    def levels(self) -> Iterator[str]:
        """Yield the group and each one above it, up to the root: what is set for one holds for all below."""
        root, path = CGROUPS, self.path
        if self.version == 1:
            root += f"/{path[len(CGROUPS) + 1 :].partition('/')[0]}"
        while path.startswith(root):
            yield path
            path = path.rpartition("/")[0]


def groups_of(pid: int | None, controller: str) -> list[ControlGroup]:
    """Return the groups of `pid` (this process if None) that have a controller."""
    return parse_groups((slurp(f"/proc/{pid or 'self'}/cgroup") or b"").decode(errors="replace"), controller)


def group_of(pid: int | None) -> ControlGroup | None:
    """Return the memory control group of `pid`; of a hybrid, version 1's, which accounts for memory there."""
    return min(groups_of(pid, "memory"), key=lambda group: group.version, default=None)


def parse_groups(text: str, controller: str) -> list[ControlGroup]:
    """Return the groups in a /proc/PID/cgroup (cgroups(7)) that can have a controller."""
    found = []
    for line in text.splitlines():
        if line.count(":") < 2:  # noqa: PLR2004 - number, controllers, path
            continue
        _, names, path = line.split(":", 2)
        if not names:
            found.append(ControlGroup(f"{CGROUPS}{path}".rstrip("/"), 2))
        elif controller in names.split(","):
            found.append(ControlGroup(f"{CGROUPS}/{names}{path}".rstrip("/"), 1))
    return found


def _group_limits(group: ControlGroup | None) -> list[Limit]:
    if group is None:
        return []
    known, files = [], _FILES[group.version]
    for path in group.levels():
        most, used = procfs.number(f"{path}/{files.most}"), procfs.number(f"{path}/{files.used}")
        if most is not None and used is not None and 0 < most < NO_LIMIT:
            cached = parse_file_pages(slurp(f"{path}/memory.stat", 1 << 14) or b"")
            known.append(Limit(most, max(0, used - cached)))
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


def oom_kills(group: ControlGroup | None) -> int | None:
    """Return how many processes of the group the kernel has killed for memory, under any limit."""
    return None if group is None else _counter(f"{group.path}/{_FILES[group.version].events}", b"oom_kill")


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
    for group in groups_of(pid, "cpu"):
        files = _FILES[group.version]
        quotas = (path for path in group.levels() if has_quota(slurp(f"{path}/{files.quota}") or b""))
        found = [_counter(f"{path}/cpu.stat", files.counter) for path in quotas]
        known = [count for count in found if count is not None]
        if known:
            return round(max(known) * files.unit, 4)
    return None


def has_quota(text: bytes) -> bool:
    """Return whether the content of a cpu.max ("max 100000") or a cpu.cfs_quota_us ("-1") is a limit."""
    first = text.split()[:1]
    return bool(first) and first[0].isdigit()
