"""How long steps take, relative to their median: from recorded trainings, and a few made-up shapes.

A table has two columns: the body (at most four medians) scales with the batch time, the excess stays in
seconds.  To stretch a pause of one second in a training with 2 ms batches to batches of a minute would invent
pauses of eight hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from detection import traces
from detection.traces import Trace

Floats = npt.NDArray[np.float64]
BODY = 4.0  # medians
LEAST = 60  # steps that a recording needs to become a table
MADE_UP = 20_000  # rows of a made-up table


class Table(NamedTuple):
    """`body`: multiples of the median step; `excess`: seconds beyond; row by row in the order of time."""

    name: str
    body: Floats
    excess: Floats


def load(directory: Path) -> list[Trace]:
    return [traces.read(path) for path in sorted(directory.glob("*.jsonl")) if traces.is_trace(path)]


def name_of(trace: Trace) -> str:
    return str(trace.meta["name"])


def is_stall(trace: Trace) -> bool:
    return any(code == "stall_begin" for _, code, _ in trace.marks)


def steps(trace: Trace) -> Floats:
    """Return the seconds of the training steps, the first of every fit and epoch left out."""
    found, began, fresh = [], None, True
    for at, code, _ in trace.marks:
        if code in ("fit_begin", "epoch_begin"):
            fresh = True
        elif code == "b":
            began = at
        elif code == "e" and began is not None:
            if not fresh:
                found.append(at - began)
            fresh = False
    return np.array(found)


def recorded(recordings: Iterable[Trace]) -> list[Table]:
    """Return a table for every healthy recording that has enough steps."""
    tables = []
    for trace in recordings:
        took = steps(trace)
        if is_stall(trace) or len(took) < LEAST:
            continue
        median = float(np.median(took))
        body = np.minimum(took, BODY * median)
        tables.append(Table(name_of(trace), body / median, took - body))
    return tables


def made_up(rng: np.random.Generator) -> list[Table]:
    pareto = np.minimum(50.0, (1.0 - rng.random(MADE_UP)) ** -0.5)
    buckets = rng.choice([0.25, 0.5, 1, 2, 4, 8], MADE_UP) * np.exp(0.1 * rng.standard_normal(MADE_UP))
    accumulated = np.where(np.arange(MADE_UP) % 8 == 0, 3.0, 0.3)
    shapes = {
        "pareto": pareto / np.median(pareto),
        "buckets": buckets,
        "accumulated": accumulated / 0.3 * np.exp(0.05 * rng.standard_normal(MADE_UP)),
        "log-normal": np.exp(0.5 * rng.standard_normal(MADE_UP)),
    }
    return [Table(name, body, np.zeros(MADE_UP)) for name, body in shapes.items()]
