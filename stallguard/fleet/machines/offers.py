"""What a machine offers to the jobs of a fleet, and when: resources for the scheduler, versions and chip for people.

    slots    jobs at once
    memory   GB (10^9 bytes) that jobs can use together
    metal    1 with an Apple GPU that computes
    mlx      1 if MLX runs here
    cuda     cards of NVIDIA

What is not known is left out: a job that needs it goes to another machine.  It is never zero, and never offered.

It takes jobs between two times of day, and only on mains power if its owner wants that.  Times are those of the clock
on the wall.  In the night in which summer time begins an hour is missing, and what would open or close in it does so at
its end; in the night in which it ends an hour comes twice, and counts both times.

Pure: what the doctor reads of the machine and of its environment, the time and its zone enter as arguments.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import stallguard
from stallguard import units
from stallguard.core.readings import Memory
from stallguard.doctor import environment_checks
from stallguard.doctor.facts import Installed
from stallguard.errors import USAGE, StallguardError
from stallguard.host.types import ListedGpu

GB = 10**9
# What the system and its programs need beside trainings: an eighth, and at least 4 GB.  macOS too lets a GPU use three
# quarters of the memory at most (two thirds below 36 GB), unless iogpu.wired_limit_mb says otherwise.
SYSTEM_SHARE, SYSTEM_LEAST = 0.125, 4 * GB
MLX_MACOS = (14, 0)  # the requirements of MLX: Apple silicon, a native Python, macOS 14
SHOWN = ("keras", "tf-keras", "tensorflow-metal", "torch", "jax", "mlx", "numpy")


class Window(NamedTuple):
    """Two times of day as minutes since midnight; `begin` can be later than `end`: then midnight is between them."""

    begin: int
    end: int

    def __str__(self) -> str:
        """Return it in words."""
        return f"{_clock(self.begin)} to {_clock(self.end)}"


class Power(NamedTuple):
    """`source`: ac or battery; `has_battery`: whether there is one.  None: not known."""

    source: str | None
    has_battery: bool | None


def window(begin: str, end: str) -> Window:
    """Return the window of two times such as 22:00 and 7:00.  Raises StallguardError (exit code 2)."""
    try:
        (hour, minute), (last_hour, last_minute) = units.clock(begin), units.clock(end)
    except ValueError as error:
        raise StallguardError(
            f"{begin!r} to {end!r} are not two times of day", cure="--between 22:00 07:00", code=USAGE
        ) from error
    found = Window(hour * 60 + minute, last_hour * 60 + last_minute)
    if found.begin == found.end:
        raise StallguardError(
            f"between {begin} and {end} there is no time",
            cure="leave out --between to take jobs at each time of day",
            code=USAGE,
        )
    return found


def closed(now: float, hours: Window | None, power: Power | None = None, zone: dt.tzinfo | None = None) -> str:
    """Return why the machine takes no jobs now, "" if it does.

    `now`: seconds since 1970; `hours`: None for each time; `power`: None if mains power is not asked for; `zone`: None
    for that of the machine.
    """
    if hours is not None and not _within(hours, now, zone):
        return f"it takes jobs from {hours}"
    return _fed(power) if power is not None else ""


def _fed(power: Power) -> str:
    """Return why a machine that wants mains power does not have it; "" if it has."""
    if power.source == "battery":
        return "it runs on battery"
    if power.source is None and power.has_battery is not False:
        return "it is not known whether it has mains power"
    return ""


def _within(hours: Window, now: float, zone: dt.tzinfo | None) -> bool:
    local = dt.datetime.fromtimestamp(now, zone)
    minute = local.hour * 60 + local.minute
    if hours.begin < hours.end:
        return hours.begin <= minute < hours.end
    return minute >= hours.begin or minute < hours.end


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


class OfferedMachine(NamedTuple):
    """What was read.  `about`: host.system.facts(); `gpus`: as the system lists them; `cards`: of CUDA.

    `installed`: the environment in which jobs without one of their own run.  None: not known.
    """

    about: Mapping[str, Any]
    memory: Memory
    gpus: tuple[ListedGpu, ...] | None = None
    cards: int | None = None
    installed: Installed | None = None


class Offer(NamedTuple):
    """`resources`: for the scheduler; `versions`: by package; `unknown`: what is not offered, and why."""

    resources: dict[str, float]
    versions: dict[str, str]
    chip: str
    unknown: tuple[str, ...] = ()


def offer(machine: OfferedMachine, slots: int, memory: int | None = None) -> Offer:
    """Return what the machine offers.  `memory`: bytes that its owner gives to jobs; None: as much as is sensible."""
    resources: dict[str, float] = {"slots": slots}
    unknown = []
    room = memory if memory is not None else usable(machine.memory)
    if room is None:
        unknown.append("memory: its size is not known; --memory gives it")
    else:
        resources["memory"] = gigabytes(room)
    if machine.cards is None:
        unknown.append("cuda: there is a driver that cannot be asked; install the extra nvidia beside stallguard")
    elif machine.cards:
        resources["cuda"] = machine.cards
    if is_apple_silicon(machine.about):
        if machine.gpus is None:
            unknown.append("metal: the system does not list its GPUs")
        elif any(not gpu.virtual for gpu in machine.gpus):
            resources["metal"] = 1
            if environment_checks.release(str(machine.about.get("version") or "")) >= MLX_MACOS:
                resources["mlx"] = 1
            elif not machine.about.get("version"):
                unknown.append("mlx: the version of macOS is not known")
    return Offer(resources, versions(machine.installed), str(machine.about.get("chip") or ""), tuple(unknown))


def is_apple_silicon(about: Mapping[str, Any]) -> bool:
    """Return whether this is a Mac with Apple's own chip; its Python can be Intel code under Rosetta."""
    return about.get("system") == "macOS" and (about.get("machine") == "arm64" or bool(about.get("rosetta")))


def usable(memory: Memory, ours: int = 0) -> int | None:
    """Return the bytes that jobs can use together now; None if it is not known.

    `ours`: bytes that jobs of the fleet use already.  Other programs' memory counts only beyond what is kept for the
    system anyway.
    """
    sizes = [size for size in (memory.total, memory.limit) if size is not None]
    if not sizes:
        return None
    whole = min(sizes)
    most = whole - max(SYSTEM_LEAST, math.ceil(whole * SYSTEM_SHARE))
    if memory.available is not None:
        most = min(most, memory.available + ours)
    return max(0, most)


def gigabytes(size: int) -> float:
    """Return bytes in GB, rounded down to a tenth: a job that needs 32 GB must not be placed on 31.96."""
    return math.floor(size / GB * 10) / 10


def versions(installed: Installed | None) -> dict[str, str]:
    """Return the versions that decide whether a checkpoint is continued bit for bit; what is absent is left out."""
    found = {"stallguard": stallguard.__version__}
    if installed is None:
        return found
    found["python"] = ".".join(map(str, installed.version))
    if tensorflow := environment_checks.tensorflow_version(installed.packages):
        found["tensorflow"] = tensorflow
    return found | {name: installed.packages[name] for name in SHOWN if installed.packages.get(name)}


class WorkerOptions(NamedTuple):
    """`host`: the machine's name in the fleet; `slots`: jobs at once; `memory`: bytes for jobs, None: as is sensible.

    `between`: None for each time of day; `mains_only`: take no job on battery.
    """

    host: str
    slots: int = 1
    memory: int | None = None
    between: Window | None = None
    mains_only: bool = False
