"""What the answers of the kernel and of its tools mean: ends of processes, datagrams, memory, heat.

Must not ask anything.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

from mac.table import Row, judged, unknown
from stallguard.host.darwin import parsers as parse

AT_ONCE = 3.0  # seconds
UNITS = {"B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# `footprint` prints "Footprint: 5329 KB", and "phys_footprint: 5345 KB" below; `sample` and `vmmap` print
# "Physical footprint:   88.4G".
FOOTPRINTS = (
    re.compile(r"^\s*phys_footprint:\s+([\d.]+)\s*([KMGT]?)B?\s*$", re.MULTILINE),
    re.compile(r"Physical footprint:\s+([\d.]+)\s*([KMGT]?)B?\s*$", re.MULTILINE),
    re.compile(r"\bFootprint:\s+([\d.]+)\s*([KMGT]?)B?\b"),
)
NEAR = 0.1  # share by which two readings of a process at rest can differ
PRESSURE = re.compile(r"com\.apple\.system\.thermalpressurelevel\s+(\d+)\s*$", re.MULTILINE)
COUNTED = re.compile(r"finished: ([\d  ]+) batches")


def no_end(what: str, answered: bool, seconds: float, refusal: str) -> Row:
    """Whether waiting for a process that is not there returns at once, and says that nothing is known.

    `refusal`: what the kernel said to a request to watch it, "" if it was not asked.
    """
    kernel = f"; kqueue: {refusal}" if refusal else ""
    holds = answered and seconds < AT_ONCE and refusal != "watched"
    return judged(f"kqueue: {what}", holds, f"{'no end known' if answered else 'an end, or none'} after "
                  f"{seconds:.2f} s{kernel}", "it is not waited for, and no exit code is made up",
                  "a training that has ended would be waited for, or be given a wrong end")  # fmt: skip


def watched(platform: str, code: int | None, expected: int, *, came: bool) -> Row:
    """Whether the end of a process that is not our child is noticed; on macOS, its exit code too."""
    holds = came and (code == expected if platform == "darwin" else code is None)
    figure = f"noticed: {came}, exit code {'not reported' if code is None else code}"
    return judged("kqueue: an end", holds, figure, "the end of an adopted training is noticed when it comes",
                  f"expected the exit code {expected}" if platform == "darwin" else "it is not noticed")  # fmt: skip


def burst(asked: int, own: int, ours: int, lost_own: int, lost_ours: int, sent: int) -> Row:
    """How many records of a burst are lost with the kernel's own buffer, and with one of the size that is `asked`."""
    figure = f"lost {lost_own} of {sent} with the kernel's {own} bytes, {lost_ours} with our {ours}"
    return judged("datagram bursts", ours >= asked and lost_ours < sent, figure,
                  "the kernel grants our buffer, and some records of a burst arrive",
                  "the kernel does not grant the buffer that is asked for")  # fmt: skip


def batches(text: str) -> int | None:
    """Return the batches that the last line of a run has."""
    found = COUNTED.search(text)
    return int(re.sub(r"\D", "", found[1])) if found else None


def footprint(text: str) -> int | None:
    """Return the bytes of a footprint that `footprint`, `sample` or `vmmap` prints; None if there is none."""
    for pattern in FOOTPRINTS:
        if found := pattern.search(text):
            return round(float(found[1]) * UNITS[found[2] or "B"])
    return None


def footprints(ours: int | None, text: str, code: int) -> Row:
    """Whether the footprint that stallguard reads is that of Apple's own tool."""
    theirs = footprint(text)
    if theirs is None:
        why = " ".join(text.split())[:160] or "no output"
        return unknown("phys_footprint", f"`footprint` shows none: {why}", f"exit code {code}")
    shown = "none" if ours is None else f"{ours / 1e6:.0f} MB"
    return judged("phys_footprint", ours is not None and abs(ours - theirs) <= NEAR * theirs,
                  f"{shown}, footprint says {theirs / 1e6:.0f} MB", "memory is counted as jetsam counts it",
                  "a kill for memory would be foreseen too late")  # fmt: skip


def thermal(pressure: int | None, notifyutil: str, pmset: str) -> Row:
    """Whether the pressure that stallguard reads is notifyd's, and pmset does not contradict it.

    `pressure`: what libproc.thermal_pressure returned.  pmset reports warnings alone, so it can be nominal under
    moderate pressure.
    """
    found, warned = PRESSURE.search(notifyutil), parse.thermal(pmset).level
    if found is None:
        return unknown("thermal pressure", "notifyutil does not have the level", f"ours {pressure}")
    level = int(found[1])
    agrees = warned in ("nominal", None) or level > 0
    return judged("thermal pressure", pressure == level and agrees, f"ours {pressure}, notifyd {level}, pmset {warned}",
                  "throttling is seen before pmset warns", "stallguard reads another level than macOS has")  # fmt: skip


def disk_order(of_file: Mapping[str, Sequence[float] | str], of_folder: Mapping[str, Sequence[float] | str]) -> Row:
    """Whether this disk has the commands that order and keep, for files and folders, and what each costs.

    Seconds of each sync by its name, or the name of the error that refuses it.
    """
    figures = [f"{name} {_cost(taken)}" for name, taken in of_file.items()]
    refused = [f"{name} of a folder: {taken}" for name, taken in of_folder.items() if isinstance(taken, str)]
    holds = not refused and not any(isinstance(taken, str) for taken in of_file.values())
    return judged("disk: order", holds, ", ".join(figures + refused),
                  "after a panic CURRENT names a whole checkpoint",
                  "stallguard syncs with the next best command that is not refused")  # fmt: skip


def _cost(taken: Sequence[float] | str) -> str:
    """Return the median and the longest of some seconds in words, or the error."""
    return (
        taken if isinstance(taken, str) else f"{1e3 * statistics.median(taken):.1f} ms (up to {1e3 * max(taken):.1f})"
    )
