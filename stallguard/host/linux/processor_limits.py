"""Processor time that a control group's quota keeps from a process (cgroups(7), Documentation/scheduler/sched-bwc.rst).

A container with `--cpus=2`, or a service with CPUQuota=, gets that much of each period and then stands still.
"""

from __future__ import annotations

from stallguard.core.text import whole_number
from stallguard.host.linux.memory_limits import CGROUPS
from stallguard.host.linux.procfs import slurp

V2 = 2
# Of cpu.stat, by version of the hierarchy: the counter, and the seconds of its unit.
_COUNTERS = {V2: ("throttled_usec", 1e-6), 1: ("throttled_time", 1e-9)}


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
