"""The machine on Linux: idle cores, other busy programs, power, heat, the lid; what never changes; when it sleeps.

Whether a busy machine is the cause of a slow-down is diagnosis, not judged here.  Of the settings, only those of
systemd-logind are read: a desktop has its own, and NVML lists the GPUs.
"""

from __future__ import annotations

import glob
import os
import platform
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path

from stallguard.core.readings import Machine
from stallguard.core.text import whole_number
from stallguard.host.linux import procfs
from stallguard.host.linux.procfs import slurp
from stallguard.host.types import Preferences, Sleep

BUSY = 0.05  # of a core; who uses less is not "busy"
TOP = 3
SUPPLIES = "/sys/class/power_supply"
THROTTLE = "/sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
FREQUENCY = "/sys/devices/system/cpu/cpu0/cpufreq"

LOGIND = "/etc/systemd/logind.conf"
IDLE, UNIT = 1800.0, {"": 1.0, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}  # logind.conf(5)
NEVER = 0.0
SLEEPS = ("suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate")  # values of IdleAction


class LinuxMachineWatch:
    """Reads the machine; keeps the last counters, because idle and busy are differences."""

    def __init__(self) -> None:
        """Know nothing yet: the first reading has no idle share."""
        self._times: tuple[int, int] | None = None
        self._cpu: dict[tuple[int, int], float] = {}
        self._scanned = 0.0
        self._throttled: int | None = None

    def read(self, now: float, ours: Collection[int], asleep: float) -> Machine:
        """Return the machine's reading.

        `now`: monotonic seconds; `ours`: pids that are not "others"; `asleep`: what Clock.asleep says.
        """
        before, self._times = self._times, parse_times(slurp("/proc/stat", 512) or b"")
        idle = total = 0
        if before is not None and self._times is not None:
            idle, total = (after - earlier for after, earlier in zip(self._times, before, strict=True))
        throttled, self._throttled = self._throttled, procfs.number(THROTTLE)
        thermal = None
        if self._throttled is not None:
            thermal = "serious" if throttled is not None and self._throttled > throttled else "nominal"
        profile = _word("/sys/firmware/acpi/platform_profile")
        allowed, possible = (
            procfs.number(f"{FREQUENCY}/scaling_max_freq"),
            procfs.number(f"{FREQUENCY}/cpuinfo_max_freq"),
        )
        lids = glob.glob("/proc/acpi/button/lid/*/state")  # noqa: PTH207
        return Machine(
            idle=round(min(1.0, max(0.0, idle / total)), 4) if total > 0 else None,
            busiest=self._busiest(now, ours),
            cores=os.cpu_count(),
            load=os.getloadavg()[0],
            power=_power(),
            thermal=thermal,
            low_power=profile == "low-power" if profile else None,
            cpu_limit=round(allowed / possible, 3) if allowed and possible else None,
            asleep=round(asleep, 3),
            lid_closed=_word(lids[0]).endswith("closed") if lids else None,
        )

    def _busiest(self, now: float, ours: Collection[int]) -> tuple[str, ...]:
        stats = {pid: stat for pid in procfs.all_pids() if (stat := procfs.stat(pid))}
        before, self._cpu = self._cpu, {(pid, stat.start): stat.own_cpu for pid, stat in stats.items()}
        elapsed, self._scanned = now - self._scanned, now
        used: defaultdict[str, float] = defaultdict(float)  # by name: twenty helpers of one browser are one
        for pid, stat in stats.items():
            key = (pid, stat.start)
            if pid not in ours and key in before:
                used[stat.name] += self._cpu[key] - before[key]
        busy = [name for name, seconds in used.items() if seconds >= BUSY * elapsed]
        return tuple(sorted(busy, key=used.__getitem__, reverse=True)[:TOP])


_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # proc_stat(5)


def parse_times(text: bytes) -> tuple[int, int] | None:
    """Return (idle, all) ticks of all cores from /proc/stat's first line; time that a host stole is busy."""
    line = text.partition(b"\n")[0].split()
    ticks = {kind: whole_number(field) for kind, field in zip(_KINDS, line[1:], strict=False)}
    known = {kind: count for kind, count in ticks.items() if count is not None}
    if line[:1] != [b"cpu"] or len(known) < len(_KINDS):
        return None
    return known["idle"] + known["iowait"], sum(known.values())


def has_battery() -> bool | None:
    """Return whether the machine has a battery; None if the system does not say."""
    return "Battery" in _supplies().values() if os.path.isdir(SUPPLIES) else None  # noqa: PTH112


def _supplies() -> dict[str, str]:
    """Return the kind of each supply of the machine; that of a mouse or a keyboard has the scope Device."""
    paths = glob.glob(f"{SUPPLIES}/*")  # noqa: PTH207
    return {path: _word(f"{path}/type") for path in paths if _word(f"{path}/scope") != "Device"}


def _power() -> str | None:
    """Return what feeds the machine: Documentation/ABI/testing/sysfs-class-power."""
    kinds = _supplies()
    if any(kind == "Mains" and _word(f"{path}/online") == "1" for path, kind in kinds.items()):
        return "ac"
    states = [_word(f"{path}/status") for path, kind in kinds.items() if kind == "Battery"]
    if "Discharging" in states:
        return "battery"
    return "ac" if states else None


def _word(path: str) -> str:
    return (slurp(path, 256) or b"").decode(errors="replace").strip()


def facts() -> dict[str, str | int | bool | None]:
    """Return what does not change while the machine runs; None: not known here."""
    has_release = any(os.path.exists(path) for path in ("/etc/os-release", "/usr/lib/os-release"))  # noqa: PTH110
    release = platform.freedesktop_os_release() if has_release else {}
    processors = (slurp("/proc/cpuinfo", 1 << 14) or b"").decode(errors="replace").splitlines()
    chip = [line for line in processors if line.startswith("model name")]
    info = procfs.sizes(slurp("/proc/meminfo", 1 << 14) or b"")
    return {
        "system": "Linux",
        "version": release.get("PRETTY_NAME"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "model": _word("/sys/class/dmi/id/product_name") or None,
        "chip": chip[0].partition(":")[2].strip() if chip else None,
        "cores": os.cpu_count(),
        "memory": info.get("MemTotal"),
        "rosetta": None,
        "python": sys.version.split()[0],
    }


def sleep_settings() -> Sleep | None:
    """Return what logind does with an idle machine; None if there is no logind."""
    if not Path("/run/systemd/seats").is_dir():
        return None
    files = [Path(LOGIND), *sorted(Path(f"{LOGIND}.d").glob("*.conf"))]
    return parse_logind(path.read_text(errors="replace") for path in files if path.is_file())


def parse_logind(texts: Iterable[str]) -> Sleep:
    """Return the setting that the files make together, later ones first; logind's default is never."""
    import configparser

    login: dict[str, str] = {}
    for text in texts:
        parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        try:
            parser.read_string(text)
        except (configparser.Error, AttributeError):  # the latter for a line that continues a name without a value
            continue  # logind skips what it cannot read, too
        if parser.has_section("Login"):
            login |= {name: value or "" for name, value in parser.items("Login")}
    if login.get("idleaction", "ignore") not in SLEEPS:
        return Sleep(after=NEVER)
    parts = re.findall(r"(\d+)\s*([a-z]*)", login.get("idleactionsec", ""))
    return Sleep(after=sum(float(number) * UNIT.get(unit, 1.0) for number, unit in parts) or IDLE)


def daily_wakes() -> tuple[str, ...]:
    """Return nothing: a timer that wakes a Linux machine belongs to root."""
    return ()


def preferences() -> Preferences:
    """Return what the machine is set to do when it is not used; its GPUs are left to NVML."""
    return Preferences(sleep=sleep_settings())
