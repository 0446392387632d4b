"""Slowdowns: how soon they are reported, how many are missed, and how often there was none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from detection.plans import between
from detection.tables import Floats, Table
from stallguard.core.detection import slowdown
from stallguard.core.detection.activity import Activity
from stallguard.core.detection.slowdown import Slowdown
from stallguard.core.events import Heartbeat
from stallguard.core.limits import DetectorLimits

FACTORS = (2.0, 3.0, 5.0, 10.0)
RECORD = 1.0  # seconds between two records
MISSED = 600.0  # seconds after which it counts as missed
NIGHT = 8.0  # hours
BLOCK = 256  # steps that stay together when a table is resampled
FEW = 32  # steps; a recording in which so many in a row were REAL times slower holds a slowdown of its own
REAL = 2.5


@dataclasses.dataclass
class Slow:
    """What was reported: `alarms` in `hours` of steady training, and latencies by factor (infinity: missed)."""

    alarms: int = 0
    hours: float = 0.0
    announced: dict[float, list[float]] = dataclasses.field(default_factory=dict)


def measure(recorded: list[Table], made_up: dict[str, Table], limits: DetectorLimits, runs: int, seed: int) -> Slow:
    """Play `runs` steady nights and `runs` slowdowns of each factor, for each kind of training."""
    found = Slow()
    steady = [table for table in recorded if is_steady(table)]
    kinds = [(steady, 0.05, 0.5), (steady, 0.5, 5.0)] + [([table], 0.1, 2.0) for table in made_up.values()]
    for number, (tables, low, high) in enumerate(kinds):
        for index in range(runs):
            rng = np.random.default_rng([seed, number, index])
            table, batch = tables[rng.integers(len(tables))], between(rng, low, high)
            found.alarms += sum(1 for _ in _reported(_steps(table, batch, NIGHT, rng), batch, limits))
            found.hours += NIGHT
            for factor in FACTORS:
                onset = rng.uniform(1800, 3600)
                steps = _steps(table, batch, 1.5, rng, onset=onset, factor=factor)
                later = (at - onset for at in _reported(steps, batch, limits) if at > onset)
                latency = next(later, np.inf)
                found.announced.setdefault(factor, []).append(latency if latency <= MISSED else np.inf)
    return found


def is_steady(table: Table) -> bool:
    """Return whether a recording is an example of steadiness: the machine that recorded was shared."""
    blocks = table.body[: len(table.body) // FEW * FEW].reshape(-1, FEW).mean(axis=1)
    return bool(blocks.max() < REAL * np.median(table.body))


def _steps(
    table: Table, batch: float, hours: float, rng: np.random.Generator, onset: float = np.inf, factor: float = 1.0
) -> Floats:
    """Return the steps of a training; from `onset` seconds on they take `factor` times as long."""
    size, count = len(table.body), int(hours * 3600.0 / batch) + 1
    starts = rng.integers(0, size, count // BLOCK + 1)
    index = ((starts[:, None] + np.arange(BLOCK)[None, :]) % size).ravel()[:count]
    took = batch * table.body[index] + table.excess[index] * between(rng, 1, 20)
    pauses = rng.random(count) < batch / 120.0
    took[pauses] += rng.exponential(1.0, int(pauses.sum()))
    slow: Floats = np.where(np.cumsum(took) > onset, took * factor, took)
    return slow[: int(np.searchsorted(np.cumsum(slow), hours * 3600.0))]


def _reported(steps: Floats, batch: float, limits: DetectorLimits) -> Iterator[float]:
    """Yield when a slowdown was reported, in seconds."""
    slow, seen = Slowdown(), Activity()
    before = Heartbeat(at=0.0, attempt=1, fits=1, fit_beats=1, beats=1, batch=1, epoch=0, phase="step")
    for heartbeat in _records(steps, batch):
        was = slow.ratio
        slow = slowdown.observe(slow, before, heartbeat, heartbeat.at, seen, limits)
        if slow.ratio > 1.0 >= was:
            yield heartbeat.at
        before = heartbeat


def _records(steps: Floats, batch: float) -> Iterator[Heartbeat]:
    """Yield the probe's records of these steps."""
    per = max(1, int(RECORD / batch))
    ends = np.cumsum(steps)
    starts = np.arange(0, len(steps), per)
    longest = np.maximum.reduceat(steps, starts)
    for start, worst in zip(starts.tolist(), longest.tolist(), strict=True):
        done = min(len(steps), start + per)
        now = float(ends[done - 1])
        yield Heartbeat(
            at=now, attempt=1, fits=1, epoch=0, phase="step", beats=done + 1, fit_beats=done + 1, batch=done + 1,
            step_s=now, longest=worst, longest_phase="step", progress_at=now,
        )  # fmt: skip
