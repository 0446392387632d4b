"""What macOS' tools print, as values: pure functions of text, tested against recorded output.

Every key is optional, for keys come and go with the system's version; what is absent is None, never zero.
This module must not run anything.
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

import msgspec

from stallguard.core.text import whole_number
from stallguard.errors import UNREADABLE
from stallguard.host.types import ListedGpu, Sleep

PERCENT = 100


class Accelerator(NamedTuple):
    """A GPU's node in the IORegistry: `ioreg -r -d 1 -w 0 -c IOAccelerator`."""

    kind: str | None  # AGXAcceleratorG14X ...; AppleParavirtGPU in a virtual machine
    model: str | None
    # 0..1: a coarse duty cycle; the tool has printed more than 100 %, which is no reading.
    utilisation: float | None
    memory: int | None  # bytes in use by the whole machine; "Alloc" counts address space and is left alone
    recoveries: int | None  # restarts since boot: a step is the cheapest sign of a GPU reset


_NODE = re.compile(r"^\s*(?:\|\s*)*\+-o \S+\s+<class ([^,>\s]+)(?:, id (0x[0-9a-f]+))?")
_PROPERTY = re.compile(r'^[\s|]*"([^"]+)" = (.*)$')
_PAIR = re.compile(r'"([^"]+)"\s*=\s*(\d{1,20})')


def accelerators(text: str) -> list[Accelerator]:
    """Return the GPUs in the output of ioreg."""
    found = []
    for kind, _, node in _nodes(text):
        if "PerformanceStatistics" in node:
            # The statistics stand in one line; elsewhere (IOReportLegend) the same names are only titles.
            numbers = {key: int(value) for key, value in _PAIR.findall(node["PerformanceStatistics"])}
            busy = numbers.get("Device Utilization %")
            found.append(
                Accelerator(
                    kind=kind,
                    model=node["model"].strip('"<>') if "model" in node else None,
                    utilisation=busy / PERCENT if busy is not None and busy <= PERCENT else None,
                    memory=numbers.get("In use system memory"),
                    recoveries=numbers.get("recoveryCount"),
                )
            )
    return found


def _nodes(text: str) -> list[tuple[str | None, str | None, dict[str, str]]]:
    """Return (class, id, properties as text) of each node; properties before any node belong to one without."""
    nodes: list[tuple[str | None, str | None, dict[str, str]]] = []
    for line in text.splitlines():
        head = _NODE.match(line)
        if head:
            nodes.append((head[1], head[2], {}))
            continue
        found = _PROPERTY.match(line)
        if found:
            nodes = nodes or [(None, None, {})]
            nodes[-1][2].setdefault(found[1], found[2])
    return nodes


class Client(NamedTuple):
    """A process' hold on the GPU: `ioreg -r -d 1 -w 0 -c AGXDeviceUserClient`."""

    id: str
    pid: int
    gpu_time: int | None  # nanoseconds, all queues; good for "did it move", too coarse for more; None: not shown
    submitted: int | None  # the newest submission, in a unit that is not documented; None: not shown


_CREATOR = re.compile(r'"pid (\d{1,10})[,"]')


def clients(text: str) -> list[Client]:
    """Return who holds the GPU."""
    found = []
    for number, (_, identity, node) in enumerate(_nodes(text)):
        creator = _CREATOR.match(node.get("IOUserClientCreator", ""))
        if creator:
            usage = _PAIR.findall(node.get("AppUsage", ""))
            times = [int(value) for key, value in usage if key == "accumulatedGPUTime"]
            last = [int(value) for key, value in usage if key == "lastSubmittedTime"]
            name, is_counted = identity or f"#{number}", "AppUsage" in node
            work = (sum(times), max(last, default=0)) if is_counted else (None, None)
            found.append(Client(name, int(creator[1]), *work))
    return found


def sysctl(text: str) -> dict[str, str]:
    """Return the `name: value` lines of sysctl, and of sw_vers (ProductVersion, BuildVersion)."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon and " " not in name.strip()}


_USED = re.compile(r"\bused\s*=\s*(\d{1,12})(?:[.,](\d{1,6}))?\s*([KMGT])")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def swap_used(text: str | None) -> int | None:
    """Return the bytes used in a vm.swapusage line; European locales print a comma for the point."""
    found = _USED.search(text or "")
    if not found:
        return None
    return int(float(f"{found[1]}.{found[2] or 0}") * _UNITS[found[3]])


PRESSURE = {"1": "normal", "2": "warn", "4": "critical"}  # dispatch's values: xnu kern_memorystatus_notify.c


class Pages(NamedTuple):
    """Memory by pages, from vm_stat or memory_pressure."""

    size: int  # bytes of a page
    counts: dict[str, int]

    def bytes(self, *names: str) -> int | None:
        """Return the bytes of the named pages together; None if one is missing."""
        counts = [self.counts.get(name) for name in names]
        known = [count for count in counts if count is not None]
        return sum(known) * self.size if len(known) == len(names) else None


_PAGE_SIZE = re.compile(r"page size of (\d{3,8})(?: bytes)?\)")
_COUNT = re.compile(r'^"?([A-Z][^":]{2,60})"?:\s+(\d{1,20})\.?\s*$', re.MULTILINE)


def pages(text: str) -> Pages | None:
    """Return the counts in the output of vm_stat or memory_pressure; None if there is no page size."""
    size = _PAGE_SIZE.search(text)
    if not size:
        return None
    return Pages(int(size[1]), {name: int(count) for name, count in _COUNT.findall(text)})


class Thermal(NamedTuple):
    """What `pmset -g therm` prints; on Apple silicon it is normally two notes, which mean that all is well."""

    level: str | None  # nominal serious critical
    cpu_limit: float | None  # 0..1


_WARNING = re.compile(r"thermal warning level\D{0,20}(\d{1,3})\s*$", re.IGNORECASE | re.MULTILINE)
_LIMIT = re.compile(r"CPU_Speed_Limit\s*=\s*(\d{1,3})\b")
CRISIS = 10  # IOKit's IOPM.h: 0 normal, 5 danger, 10 crisis


def thermal(text: str) -> Thermal:
    """Return the thermal state; None if the text does not have it."""
    warned, limit = _WARNING.search(text), _LIMIT.search(text)
    level = "nominal" if "No thermal warning level" in text else None
    if warned:
        value = int(warned[1])
        level = "critical" if value >= CRISIS else "serious" if value else "nominal"
    return Thermal(level, min(1.0, int(limit[1]) / PERCENT) if limit else None)


_SOURCE = re.compile(r"Now drawing from '(\w+) Power'")


def power(text: str) -> str | None:
    """Return "ac" or "battery" from `pmset -g ps`; an UPS is a battery."""
    found = _SOURCE.search(text)
    return None if not found else "ac" if found[1] == "AC" else "battery"


def has_battery(text: str) -> bool | None:
    """Return whether `pmset -g ps` lists a battery, the machine's or a UPS's; None if it says nothing."""
    return None if not _SOURCE.search(text) else bool(re.search(r"^ -\S", text, re.MULTILINE))


def lid_closed(text: str) -> bool | None:
    """Return whether the lid is closed, from `ioreg -r -k AppleClamshellState`; None: there is no lid."""
    found = re.search(r'"AppleClamshellState" = (Yes|No)', text)
    return found[1] == "Yes" if found else None


class ProcessRow(NamedTuple):
    """A line of ps."""

    pid: int
    state: str  # letters of ps(1)
    cpu: float | None  # 0.. cores, a decaying average of up to a minute
    name: str


def ps(text: str) -> list[ProcessRow]:
    """Return the lines of a ps table whose headings are PID, STAT, %CPU and COMMAND among others."""
    lines = text.splitlines()
    heads = lines[0].split() if lines else []
    if not {"PID", "STAT", "%CPU"} <= set(heads) or heads[-1] not in ("COMMAND", "COMM"):
        return []
    found = []
    for line in lines[1:]:
        row = dict(zip(heads, line.split(None, len(heads) - 1), strict=False))
        pid = whole_number(row.get("PID"))
        if len(row) == len(heads) and pid is not None:
            percent = re.fullmatch(r"(\d{1,6})(?:[.,](\d{1,3}))?", row["%CPU"])
            cpu = float(f"{percent[1]}.{percent[2] or 0}") / PERCENT if percent else None
            found.append(ProcessRow(pid, row["STAT"], cpu, row[heads[-1]].strip()))
    return found


LOW_POWER = 1  # of `powermode`, which newer systems print for `lowpowermode`: 0 automatic, 1 low, 2 high
NEVER, MINUTE = 0.0, 60.0

# PowerManagement's pmset.c: `  wakepoweron at 10:58PM every day`; other days of the week are no help every night.
_WAKE = re.compile(
    r"^\s*wake\w*\s+at\s+(\d{1,2}):(\d\d)(?::\d\d)?\s*(?:([AP])M)?\s+every\s*day", re.MULTILINE | re.IGNORECASE
)
# One setting a line, indented by a space in most versions; names may hold spaces ("Sleep On Power Button").
# Nine digits at most: int() refuses thousands of them, and no setting has more.
_SETTING = re.compile(r"\s*([A-Za-z]\w*)\s+(-?\d{1,9})\b(?:\s+\((?:\w+ prevented by )([^)]*)\))?", re.ASCII)


def sleep(text: str) -> Sleep | None:
    """Return the settings of `pmset -g`; None if they have no line `sleep`."""
    found = {match[1]: match for line in text.splitlines() if (match := _SETTING.match(line))}
    if "sleep" not in found:
        return None
    off = "SleepDisabled" in found and found["SleepDisabled"][2] != "0"
    names = (found["sleep"][3] or "").split(",")
    mode = found.get("lowpowermode") or found.get("powermode")
    return Sleep(
        after=NEVER if off else max(NEVER, float(found["sleep"][2]) * MINUTE),
        prevented_by=tuple(dict.fromkeys(name.strip() for name in names if name.strip())),
        low_power=int(mode[2]) == LOW_POWER if mode else None,
    )


def wakes(text: str) -> tuple[str, ...]:
    """Return the daily wake-ups, as 22:58, in the repeating events of `pmset -g sched`."""
    repeating = text.partition("Repeating power events:")[2].partition("Scheduled power events:")[0]
    found = []
    for hour, minute, half in _WAKE.findall(repeating):
        hours = int(hour) % 12 + (12 if half == "P" else 0) if half else int(hour)
        found.append(f"{hours:02}:{minute}")
    return tuple(found)


def displays(text: str) -> tuple[ListedGpu, ...] | None:
    """Return the GPUs in `system_profiler SPDisplaysDataType -json`; None if it is something else."""
    with contextlib.suppress(KeyError, TypeError, *UNREADABLE):
        entries = msgspec.json.decode(text.encode())["SPDisplaysDataType"]
        found = []
        for entry in entries:
            if isinstance(entry, dict):
                # _name can be an untranslated key such as kHW_AppleM1Item; sppci_model is absent on some systems.
                name = str(entry.get("sppci_model") or entry.get("_name") or "unknown")
                number = whole_number(str(entry.get("sppci_cores", "")))  # a string, if it is there at all
                found.append(ListedGpu(name, number, virtual="paravirtual" in name.lower()))
        return tuple(found)
    return None
