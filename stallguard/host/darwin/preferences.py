"""Sleep settings from `pmset -g` and GPUs from `system_profiler`: pure parsers, and the two calls.

Must not judge what it reads.
"""

from __future__ import annotations

import contextlib
import re

import msgspec

from stallguard.core.text import whole_number
from stallguard.errors import UNREADABLE
from stallguard.host import tool
from stallguard.host.types import ListedGpu, Sleep

PMSET = ["/usr/bin/pmset", "-g"]
PROFILER = ["/usr/sbin/system_profiler", "SPDisplaysDataType", "-json"]  # 1 to 3 s
LOW_POWER = 1  # of `powermode`, which newer systems print for `lowpowermode`: 0 automatic, 1 low, 2 high
NEVER, MINUTE = 0.0, 60.0

# PowerManagement's pmset.c: `  wakepoweron at 10:58PM every day`; other days of the week are no help every night.
_WAKE = re.compile(
    r"^\s*wake\w*\s+at\s+(\d{1,2}):(\d\d)(?::\d\d)?\s*(?:([AP])M)?\s+every\s*day",
    re.MULTILINE | re.IGNORECASE,
)
# One setting a line, indented by a space in most versions; names may hold spaces ("Sleep On Power Button").
# Nine digits at most: int() refuses thousands of them, and no setting has more.
_SETTING = re.compile(r"\s*([A-Za-z]\w*)\s+(-?\d{1,9})\b(?:\s+\((?:\w+ prevented by )([^)]*)\))?", re.ASCII)


def sleep() -> Sleep | None:
    """Return the settings in use; None if pmset does not answer."""
    with contextlib.suppress(TimeoutError):
        return parse_sleep(tool.output(PMSET, 5.0) or "")
    return None


def parse_sleep(text: str) -> Sleep | None:
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


def wakes() -> tuple[str, ...]:
    """Return the times of day at which the Mac wakes each day; none if pmset does not answer."""
    with contextlib.suppress(TimeoutError):
        return parse_wakes(tool.output([*PMSET, "sched"], 5.0) or "")
    return ()


def parse_wakes(text: str) -> tuple[str, ...]:
    """Return the daily wake-ups, as 22:58, in the repeating events of `pmset -g sched`."""
    repeating = text.partition("Repeating power events:")[2].partition("Scheduled power events:")[0]
    found = []
    for hour, minute, half in _WAKE.findall(repeating):
        hours = int(hour) % 12 + (12 if half == "P" else 0) if half else int(hour)
        found.append(f"{hours:02}:{minute}")
    return tuple(found)


def gpus() -> tuple[ListedGpu, ...] | None:
    """Return the GPUs; None if system_profiler does not answer."""
    with contextlib.suppress(TimeoutError):
        return parse_displays(tool.output(PROFILER, 15.0) or "")
    return None


def parse_displays(text: str) -> tuple[ListedGpu, ...] | None:
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
