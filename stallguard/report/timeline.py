"""A run over time: what was measured as a few thousand numbers a series, what happened as bands and marks.

Counters are interpolated between their readings, so a rate has no holes; levels are means; pauses are maxima.
The grid is even over the run and as fine as a second around each incident.  The only module of the report that
computes with arrays.  Pure; must not draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stallguard.core.actions import Announce
from stallguard.core.events import ClockGap, Heartbeat
from stallguard.core.readings import Device, Machine, Memory, Process
from stallguard.report.attempt_rows import AttemptRow
from stallguard.report.incidents import Incident
from stallguard.report.journal_record import Record, ago

Array = npt.NDArray[np.float64]
POINTS = 2400  # of the even grid: two for each pixel of a wide screen
FINEST = 0.5  # seconds of the smallest cell of the even grid
AROUND, FINE = 90.0, 1.0  # seconds on both sides of an incident that get a grid of one second
SPANS = 4000  # phases that a run is divided into at most
FAR = 120.0  # seconds between two readings above which a counter is not interpolated
LINES = 6  # of one chart at most
# Charts that are named, not drawn, if all values are zero.
OMITTED_AT_ZERO = ("rate", "pressure", "swap", "gpu")
DIGITS = 4  # significant digits of a number
PRESSURE = {"normal": 0.0, "warn": 0.5, "critical": 1.0}  # the levels of macOS as shares

# Announcements that a report marks, and as what.
MARKED = {
    "training.recovered": "recovered", "training.continued": "recovered", "output.known_line": "line",
    "run.finished": "end", "run.failed": "end", "run.gave_up": "end",
}  # fmt: skip

# Phases of the probe's record, as a report shows them.
GROUPS = {
    "importing": "starting", "tracing": "starting", "first run": "starting",
    "step": "training", "between": "training", "input": "training", "epoch start": "training",
    "epoch end": "training",
    "validation": "validation", "prediction": "validation",
    "checkpoint": "saving",
    "idle": "outside", "finishing": "outside", "named": "outside",
}  # fmt: skip


class Series(msgspec.Struct, frozen=True):
    """One line of a panel: `values` at the timeline's times, None if nothing is known."""

    name: str
    values: list[float | None]


class Panel(msgspec.Struct, frozen=True):
    """One small chart.  `unit`: s, /s, cores, share, bytes, watts, or empty; `log`: a logarithmic scale fits."""

    key: str
    title: str
    unit: str
    series: list[Series]
    log: bool = False


class Band(msgspec.Struct, frozen=True):
    """A span of time: a group of phases, silence (an incident), or asleep."""

    kind: str
    began: float
    ended: float
    number: int = 0  # of the incident


class Mark(msgspec.Struct, frozen=True):
    """An instant: stall, crash, restart, recovered, end, or line (of the output).  `label`: a number, or empty."""

    kind: str
    at: float
    label: str


class Timeline(msgspec.Struct, frozen=True):
    """What a report draws.  `start`: seconds since the epoch; every other time is seconds after `start`."""

    start: float
    offset: float  # seconds to add for the clock that the user reads
    seconds: float
    times: list[float]
    panels: list[Panel]
    bands: list[Band]
    marks: list[Mark]
    quiet: list[str]  # what was measured and always zero


class _Points(NamedTuple):
    """Readings of one value: their times, ascending, and the values."""

    at: Array
    value: Array


def timeline(
    record: Record, attempts: Sequence[AttemptRow], incidents: Sequence[Incident], offset: float = 0.0
) -> Timeline:
    """Return the timeline of a run; without panels if the journal is empty."""
    edges = grid(record.first, record.last, [incident.noticed for incident in incidents])
    panels = [panel for panel in _panels(record, edges, incidents) if panel.series]
    quiet = [
        panel for panel in panels if panel.key in OMITTED_AT_ZERO and not any(map(_has_values, panel.series))
    ]
    zero = record.first
    bands = [
        Band(kind, round(began - zero, 2), round(ended - zero, 2))
        for kind, began, ended in _phases(record, attempts)
    ]
    marks = []
    for one in incidents:
        ended = record.last if one.ended is None else one.ended
        bands.append(Band("silence", round(one.began - zero, 2), round(ended - zero, 2), one.number))
        marks.append(Mark(one.kind, round(one.noticed - zero, 2), str(one.number or "")))
    marks += [Mark("restart", round(one.began - zero, 2), str(one.number)) for one in attempts[1:]]
    for at, what in record.happened:
        if isinstance(what, ClockGap):
            bands.append(Band("asleep", round(max(0.0, at - what.seconds - zero), 2), round(at - zero, 2)))
        elif isinstance(what, Announce) and what.message in MARKED:
            marks.append(Mark(MARKED[what.message], round(at - zero, 2), ""))
    return Timeline(
        start=round(zero, 3),
        offset=offset,
        seconds=round(record.last - zero, 3),
        times=[round(float(at), 2) for at in _middles(edges) - zero],
        panels=[panel for panel in panels if panel not in quiet],
        bands=bands,
        marks=sorted(marks, key=lambda mark: mark.at),
        quiet=[panel.title.lower() for panel in quiet],
    )


def grid(first: float, last: float, near: Iterable[float]) -> Array:
    """Return the edges of the cells that a run is divided into, finer around the times of `near`."""
    count = int(min(POINTS, max(2, (last - first) / FINEST)))
    pieces = [np.linspace(first, max(last, first + FINEST), count + 1)]
    if (last - first) / count > FINE:
        pieces += [np.arange(at - AROUND, at + AROUND, FINE) for at in near]
    edges: Array = np.unique(np.round(np.concatenate(pieces), 2))
    inside: Array = edges[(edges >= pieces[0][0]) & (edges <= pieces[0][-1])]
    return inside


def _middles(edges: Array) -> Array:
    return (edges[:-1] + edges[1:]) / 2


# ---- from points to cells -----------------------------------------------------------------------------------


def _points(pairs: Iterable[tuple[float, float | None]]) -> _Points:
    known = [pair for pair in pairs if pair[1] is not None]
    at, value = zip(*known, strict=True) if known else ((), ())
    return _Points(np.array(at, dtype=np.float64), np.array(value, dtype=np.float64))


def rate(points: _Points, edges: Array) -> Array:
    """Return how fast a counter rose in each cell, per second; a counter that fell began anew."""
    if len(points.at) < 2:  # noqa: PLR2004 - a rate needs two points
        return np.full(len(edges) - 1, np.nan)
    total = np.concatenate(([0.0], np.cumsum(np.maximum(0.0, np.diff(points.value)))))
    at = np.maximum.accumulate(points.at)
    risen = np.diff(np.interp(edges, at, total)) / np.diff(edges)
    return np.where(_is_known(at, edges), risen, np.nan)


def _is_known(at: Array, edges: Array) -> npt.NDArray[np.bool_]:
    """Return for each cell whether there is a reading before and after its middle, at most FAR apart."""
    middles = _middles(edges)
    after = np.searchsorted(at, middles)
    inside = (after > 0) & (after < len(at))
    apart = at[np.clip(after, 0, len(at) - 1)] - at[np.clip(after - 1, 0, len(at) - 1)]
    known: npt.NDArray[np.bool_] = inside & (apart <= FAR)
    return known


def mean(points: _Points, edges: Array) -> Array:
    """Return the mean of a level in each cell, NaN in a cell without a reading."""
    cell, inside = _cells(points, edges)
    count = np.bincount(cell, minlength=len(edges) - 1)
    total = np.bincount(cell, weights=points.value[inside], minlength=len(edges) - 1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def highest(points: _Points, edges: Array) -> Array:
    """Return the highest value in each cell, NaN in a cell without one."""
    cell, inside = _cells(points, edges)
    top = np.full(len(edges) - 1, -np.inf)
    np.maximum.at(top, cell, points.value[inside])
    return np.where(np.isfinite(top), top, np.nan)


def _cells(points: _Points, edges: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the cell of each point inside the grid, and which points are inside."""
    inside = (points.at >= edges[0]) & (points.at <= edges[-1])
    cell = np.clip(np.searchsorted(edges, points.at[inside], side="right") - 1, 0, len(edges) - 2)
    return cell, inside


def _series(name: str, values: Array) -> list[Series]:
    """Return the line of a panel in a list, which is empty if no value is known."""
    if not np.isfinite(values).any():
        return []
    return [Series(name, [None if value != value else short(value) for value in values.tolist()])]  # noqa: PLR0124


def _has_values(series: Series) -> bool:
    return any(series.values)


def short(value: float) -> float:
    """Return a number with as many digits as a chart can show."""
    return float(f"{value:.{DIGITS}g}")


# ---- the panels -----------------------------------------------------------------------------------------------


def _panels(record: Record, edges: Array, incidents: Sequence[Incident]) -> list[Panel]:
    done = _points(_beats(record.heartbeat))
    beats = rate(done, edges)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The seconds spent on batches that were finished, as a counter: a stall adds nothing to it.
        spent = np.where(np.diff(done.value, prepend=0.0) > 0, np.diff(done.at, prepend=0.0), 0.0)
        batch = np.where(beats > 0, rate(_Points(done.at, np.cumsum(spent)), edges) / beats, np.nan)
    # Cells that lie inside a silence as a whole: no batch ended there, so the rate is zero, however long the silence.
    silent = np.zeros(len(edges) - 1, dtype=np.bool_)
    for one in incidents:
        ended = record.last if one.ended is None else one.ended
        silent |= (edges[:-1] >= one.began) & (edges[1:] <= ended)
    pauses = _points(
        (at, heartbeat.longest)
        for at, heartbeat in record.heartbeat
        if heartbeat.beats and heartbeat.longest > 0
    )
    losses = _by_process(
        (at, heartbeat.pid, heartbeat.loss)
        for at, heartbeat in record.heartbeat
        if heartbeat.loss is not None
    )
    return [
        Panel("batch", "Time a batch", "s",
              _series("mean", batch) + _series("longest pause", highest(pauses, edges)), log=True),
        Panel("rate", "Throughput", "/s",
              _series("batches a second", np.where(silent, 0.0, beats))),
        Panel("loss", "Loss", "", [
            line for number, points in enumerate(losses[:LINES], 1)
            for line in _series("loss" if len(losses) == 1 else f"training {number}", mean(points, edges))
        ]),
        *_sensed(record, edges),
    ]  # fmt: skip


def _beats(heartbeat: Sequence[tuple[float, Heartbeat]]) -> list[tuple[float, float | None]]:
    """Return the number of finished batches over the times at which they ended: flat in a pause, not missing.

    Batches that a process had finished before its first heartbeat took an unknown time, and are left out.
    """
    points: list[tuple[float, float | None]] = []
    known: dict[tuple[int, int], int] = {}  # batches of each process of each attempt
    total, latest = 0, 0.0
    for at, record in heartbeat:
        key = (record.attempt, record.pid)
        begins = key not in known or (record.pid != 0 and record.beats < known[key])  # it replaced itself
        before = record.beats if begins else known[key]
        total += max(0, record.beats - before)
        known[key] = max(before, record.beats)
        if begins or record.beats > before or not known[key]:
            # A record of one process can come after a record of what another process did later.
            latest = max(latest, ago(at, record.at, record.beat_at) if record.beats else at)
            points.append((latest, total))
    return points


def _sensed(record: Record, edges: Array) -> list[Panel]:
    """Return the panels of the readings of process, device, memory and machine."""

    def of(kind: type, take: Callable[[Any], float | None]) -> _Points:
        name = str(kind.__struct_config__.tag)  # type: ignore[attr-defined]  # every reading is a Struct
        return _points((at, take(reading)) for at, reading in record.readings.get(name, ()))

    def level(name: str, kind: type, take: Callable[[Any], float | None]) -> list[Series]:
        return _series(name, mean(of(kind, take), edges))

    trees = record.readings.get("process", ())
    used = _by_process((at, seen.pid, seen.cpu) for at, seen in trees if isinstance(seen, Process))
    held = _by_process(
        (at, seen.pid, seen.rss if seen.footprint is None else seen.footprint)
        for at, seen in trees
        if isinstance(seen, Process)
    )
    cores = _sum([rate(points, edges) for points in used], edges)
    level_of = _followed if held[1:] else mean
    memory = _sum([level_of(points, edges) for points in held], edges)
    swapped = rate(of(Memory, lambda seen: seen.swap_outs), edges)
    return [
        Panel("cpu", "Processor of the training", "cores", _series("cores", cores)),
        Panel("idle", "Processor of the machine", "share", level("idle", Machine, lambda seen: seen.idle)),
        Panel("gpu", "GPU", "share", level("busy", Device, lambda seen: seen.utilisation)),
        Panel("gpumem", "Memory of the GPU", "bytes", level("in use", Device, lambda seen: seen.memory)),
        Panel("power", "Power of the GPU", "watts", level("drawn", Device, lambda seen: seen.power)),
        Panel("memory", "Memory of the training", "bytes", _series("footprint", memory)),
        Panel("available", "Memory of the machine", "bytes",
              level("available", Memory, lambda seen: seen.available)),
        Panel("pressure", "Memory pressure", "share", level("pressure", Memory, _pressure)),
        Panel("swap", "Swap", "bytes",
              level("in use", Memory, lambda seen: seen.swap_used) + _series("written a second", swapped)),
    ]  # fmt: skip


def _by_process(rows: Iterable[tuple[float, int, float | None]]) -> list[_Points]:
    """Return the points of each process, of rows (time, pid, value); one without any if there are no rows."""
    each: dict[int, list[tuple[float, float | None]]] = {}
    for at, pid, value in rows:
        each.setdefault(pid, []).append((at, value))
    return [_points(pairs) for pairs in each.values()] or [_points(())]


def _followed(points: _Points, edges: Array) -> Array:
    """Return a level between its readings, so that those of several processes can be added up."""
    if not len(points.at):
        return np.full(len(edges) - 1, np.nan)
    between = np.interp(_middles(edges), points.at, points.value)
    return np.where(_is_known(points.at, edges), between, np.nan)


def _sum(each: Sequence[Array], edges: Array) -> Array:
    """Return the sum of what is known in each cell."""
    known = np.zeros(len(edges) - 1, dtype=np.bool_)
    total = np.zeros(len(edges) - 1)
    for values in each:
        known |= np.isfinite(values)
        total += np.nan_to_num(values)
    return np.where(known, total, np.nan)


def _pressure(seen: Memory) -> float | None:
    """Return the level of macOS, else the share of Linux."""
    return PRESSURE.get(seen.pressure or "", seen.stall_some)


# ---- the phases ---------------------------------------------------------------------------------------------------


def _phases(record: Record, attempts: Sequence[AttemptRow]) -> list[tuple[str, float, float]]:
    """Return the phases as (group, begin, end); one too short to be visible is added to the one before it."""
    narrow = max(FINEST, (record.last - record.first) / SPANS)
    ends = {attempt.number: attempt.ended or record.last for attempt in attempts}
    spans: list[tuple[int, str, float, float]] = []
    leading = _leading(record.heartbeat)
    groups = groupby(leading, key=lambda pair: (pair[1].attempt, GROUPS.get(pair[1].phase, "outside")))
    begins = [(key, next(group)[0]) for key, group in groups]
    for ((attempt, kind), began), (following, until) in pairwise([*begins, ((0, ""), 0.0)]):
        ended = max(began, until if following[0] == attempt else ends.get(attempt, began))
        last = spans[-1] if spans else None
        if last and last[0] == attempt and (last[1] == kind or ended - began < narrow):
            spans[-1] = (attempt, last[1], last[2], ended)
        else:
            spans.append((attempt, kind, began, ended))
    return [span[1:] for span in spans]


def _leading(heartbeat: Sequence[tuple[float, Heartbeat]]) -> list[tuple[float, Heartbeat]]:
    """Return the records of one process at a time: one that trains, while it sends heartbeats, then the next."""
    last = {(record.attempt, record.pid): at for at, record in heartbeat}
    trains = {(record.attempt, record.pid) for _, record in heartbeat if record.beats}
    kept: list[tuple[float, Heartbeat]] = []
    present: tuple[int, int] | None = None
    for at, record in heartbeat:
        key = (record.attempt, record.pid)
        over = present is None or present[0] != key[0] or at > last[present]
        if over or (key in trains and present not in trains):
            present = key
        if key == present:
            kept.append((at, record))
    return kept
