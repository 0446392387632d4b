"""Figures of a process that runs for long: what of its growth is a slope, and what is noise.

Must not judge.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil


class Reading(NamedTuple):
    """A process at one moment.  `at`, `cpu`: seconds; `memory`: bytes; `journal`: bytes on the disk."""

    at: float
    memory: int
    cpu: float
    files: int
    threads: int
    journal: int


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth per unit of x: the median of the slopes between the points of the first and the second half.

    A page that is touched once moves it little, unlike a least-squares line (Theil and Sen's estimator, on pairs that
    are half the time apart).  0 for fewer than two points.
    """
    half = len(points) // 2
    found = [
        (late[1] - early[1]) / (late[0] - early[0])
        for early, late in zip(points[:half], points[len(points) - half :], strict=True)
        if late[0] > early[0]
    ]
    return statistics.median(found) if found else 0.0


def read(process: psutil.Process, journal: Path, at: float) -> Reading:
    """Return the process as it is now.  Raises psutil.Error if it is gone."""
    with process.oneshot():
        times = process.cpu_times()
        return Reading(
            at, process.memory_info().rss, times.user + times.system, process.num_fds(), process.num_threads(),
            size_of(journal),
        )  # fmt: skip


def size_of(journal: Path) -> int:
    """Return the bytes of a journal and its older parts."""
    return sum(part.stat().st_size for part in journal.parent.glob(f"{journal.stem}.*") if part.is_file())
