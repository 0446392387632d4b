"""A run over time: what was measured as a few thousand numbers a series, what happened as bands and marks.

Counters are interpolated between their readings, so a rate has no holes; levels are means; pauses are maxima.  No value
is drawn if there was none: in a stall no batch ended, so it has no time a batch and no loss; between two attempts there
was no process.  The grid is even over the run and as fine as a second around each incident.  Pure; must not draw.

It also has what the training did when (its phases, its epochs, the batches that it trained again, and where its process
was not), and what the trainings learned: their losses, and the results of their epochs with validation and learning
rate.  A training is a place (probe/process_key.py), which the next attempt finds again: its line goes on there.  Names
of results are the script's own; those that are no plain names are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Any

import msgspec
import numpy as np

from stallguard.core.actions import Announce
from stallguard.core.events import ClockGap, Heartbeat, ProbeConnected, ProbeNote
from stallguard.core.readings import Device, Machine, Memory, Process
from stallguard.report.attempt_rows import EPOCH, AttemptRow, epoch_values
from stallguard.report.incidents import Incident
from stallguard.report.journal_record import Record, ago
from stallguard.report.time_series import (
    FINEST,
    Array,
    Mask,
    Points,
    Span,
    by_process,
    followed,
    grid,
    held,
    highest,
    is_known,
    mean,
    middles,
    numbers,
    points,
    rate,
    total,
    within,
)

LINES = 6  # of one chart at most
METRICS = 4  # charts of metrics at most
# Charts that are named, not drawn, if all values are zero.
OMITTED_AT_ZERO = ("rate", "pressure", "swap", "gpu")
PRESSURE = {"normal": 0.0, "warn": 0.5, "critical": 1.0}  # the levels of macOS as shares
TRAINING, PROCESSOR, MEMORY = "Training", "Processor and GPU", "Memory"  # groups of charts

# Announcements that a report marks, and as what.
MARKED = {
    "training.recovered": "recovered", "training.continued": "recovered", "output.known_line": "line",
    "run.finished": "end", "run.failed": "end", "run.gave_up": "end", "run.diverged": "end",
}  # fmt: skip

SPANS = 4000  # phases that a run is divided into at most
EPOCHS = 500  # beginnings of epochs at most, evenly chosen

# Phases of the probe's record, as a report shows them.
GROUPS = {
    "importing": "starting", "tracing": "starting", "first run": "starting",
    "step": "training", "between": "training", "input": "training", "epoch start": "training",
    "epoch end": "training",
    "validation": "validation", "prediction": "validation",
    "checkpoint": "saving",
    "idle": "outside", "finishing": "outside", "named": "outside",
}  # fmt: skip

Led = Sequence[tuple[float, Heartbeat]]

LOSS, LEARNING_RATE = "loss", "Learning rate"
RATES = ("learning_rate", "lr")  # Keras 3, Keras 2
VALIDATION = "val_"

EpochProcess = tuple[int, int]  # attempt, pid


class Series(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a panel: `values` at the timeline's times, None if nothing is known.

    `newest`: it has a value at each end of an epoch, which stands until the next one.
    """

    name: str
    values: list[float | None]
    newest: bool = False


class Panel(msgspec.Struct, frozen=True):
    """One small chart.  `unit`: s, /s, cores, share, bytes, watts, or empty; `log`: a logarithmic scale fits.

    `group`: the title of the charts that it stands with.
    """

    key: str
    title: str
    unit: str
    series: list[Series]
    log: bool = False
    group: str = ""


class Band(msgspec.Struct, frozen=True):
    """A span of time: a group of phases, silence (an incident), redone (batches trained again), or asleep."""

    kind: str
    began: float
    ended: float
    number: int = 0  # of the incident


class Mark(msgspec.Struct, frozen=True):
    """An instant: stall, crash, restart, recovered, end, or line (of the output).  `label`: a number, or empty."""

    kind: str
    at: float
    label: str


class EpochMark(msgspec.Struct, frozen=True):
    """The beginning of an epoch, or of the rest of one that an attempt resumed."""

    at: float  # seconds after the beginning of the timeline
    epoch: int  # counted from 1


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
    epochs: list[EpochMark] = []


def timeline(
    record: Record, attempts: Sequence[AttemptRow], incidents: Sequence[Incident], offset: float = 0.0
) -> Timeline:
    """Return the timeline of a run; without panels if the journal is empty.

    `offset`: seconds to add for the clock that the user reads.
    """
    silences = [(one.began, record.last if one.ended is None else one.ended) for one in incidents]
    instants = [at for span in silences for at in span] + [one.began for one in attempts[1:]]
    edges = grid(record.first, record.last, [*(one.noticed for one in incidents), *instants])
    absences = absence_spans(attempts)
    panels = [panel for panel in _panels(record, edges, silences, absences) if panel.series]
    quiet = [panel for panel in panels if panel.key in OMITTED_AT_ZERO and not any(map(_has_values, panel.series))]
    zero, led = record.first, leading(record)
    spans = phases(record, led, attempts)
    if attempts[1:]:
        spans += [("redone", began, ended) for began, ended in redone(record)]
    bands = [Band(kind, round(began - zero, 2), round(ended - zero, 2)) for kind, began, ended in spans]
    marks = []
    for one, (began, ended) in zip(incidents, silences, strict=True):
        bands.append(Band("silence", round(began - zero, 2), round(ended - zero, 2), one.number))
        marks.append(Mark(one.kind, round(began - zero, 2), str(one.number or "")))
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
        times=[round(float(at), 2) for at in middles(edges) - zero],
        panels=[panel for panel in panels if panel not in quiet],
        bands=bands,
        marks=sorted(marks, key=lambda mark: mark.at),
        quiet=[panel.title.lower() for panel in quiet],
        epochs=[EpochMark(round(at - zero, 2), epoch) for at, epoch in epoch_beginnings(led)],
    )


def _series(name: str, values: Array, *, newest: bool = False) -> list[Series]:
    """Return the line of a panel in a list, which is empty if no value is known."""
    return [Series(name, numbers(values), newest)] if np.isfinite(values).any() else []


def _has_values(series: Series) -> bool:
    return any(series.values)


def _panels(record: Record, edges: Array, silences: Sequence[Span], absences: Sequence[Span]) -> list[Panel]:
    """Return the panels; one of which nothing is known has no series."""
    done = points(_beats(record.heartbeat))
    beats = rate(done, edges)
    with np.errstate(divide="ignore", invalid="ignore"):
        # The seconds spent on batches that were finished, as a counter: a stall adds nothing to it.
        spent = np.where(np.diff(done.value, prepend=0.0) > 0, np.diff(done.at, prepend=0.0), 0.0)
        batch = np.where(beats > 0, rate(Points(done.at, np.cumsum(spent)), edges) / beats, np.nan)
    # No batch ended in a silence: the rate is zero, however long the silence, and a batch has no time there.
    silent = within(silences, edges)
    absent = within(absences, edges, touched=True)
    untrained = silent | absent
    gone = [at for span in absences for at in span]
    breaks = [*gone, *(at for span in silences for at in span)]
    trained = _trained(record)
    pauses = points((at, heartbeat.longest) for at, heartbeat in trained if heartbeat.longest > 0)
    longest = np.where(untrained, np.nan, highest(pauses, edges, breaks))
    lines = epoch_lines(record)
    losses = [(name, mean(level, edges, breaks, far=np.inf)) for name, level in loss_points(record, trained)]
    return [
        Panel("batch", "Time a batch", "s",
              _series("mean", np.where(untrained, np.nan, batch)) + _series("longest pause", longest),
              log=True, group=TRAINING),
        Panel("rate", "Throughput", "/s",
              _series("batches a second", np.where(absent, np.nan, np.where(silent, 0.0, beats))), group=TRAINING),
        Panel("loss", "Loss", "", [
            line for name, values in losses[:LINES]
            for line in _series(name, np.where(untrained, np.nan, values))
        ] + _newest(lines.pop("loss", {}), edges, absent), group=TRAINING),
        *(
            Panel(f"metric-{number}", title, "", _newest(each, edges, absent)[:LINES],
                  log=title == LEARNING_RATE, group=TRAINING)
            for number, (title, each) in enumerate(list(lines.items())[:METRICS])
        ),
        *_sensed(record, edges, absent, gone),
    ]  # fmt: skip


def _newest(lines: dict[str, Points], edges: Array, absent: Mask) -> list[Series]:
    """Return lines of which each value stands until the next one."""
    return [
        line for name, level in lines.items()
        for line in _series(name, np.where(absent, np.nan, held(level, edges)), newest=True)
    ]  # fmt: skip


def _trained(record: Record) -> list[tuple[float, Heartbeat]]:
    """Return the probe's records that have a new batch, or a new loss, of their process."""
    kept = []
    before: dict[tuple[int, int], tuple[int, float | None]] = {}
    for at, heartbeat in record.heartbeat:
        key, now = (heartbeat.attempt, heartbeat.pid), (heartbeat.beats, heartbeat.loss)
        if heartbeat.beats and before.get(key) != now:
            kept.append((at, heartbeat))
        before[key] = now
    return kept


def _beats(heartbeat: Sequence[tuple[float, Heartbeat]]) -> list[tuple[float, float | None]]:
    """Return the number of finished batches over the times at which they ended: flat in a pause, not missing.

    Batches that a process had finished before its first heartbeat took an unknown time, and are left out.
    """
    found: list[tuple[float, float | None]] = []
    known: dict[tuple[int, int], int] = {}  # batches of each process of each attempt
    finished, latest = 0, 0.0
    for at, record in heartbeat:
        key = (record.attempt, record.pid)
        begins = key not in known or (record.pid != 0 and record.beats < known[key])  # it replaced itself
        before = record.beats if begins else known[key]
        finished += max(0, record.beats - before)
        known[key] = max(before, record.beats)
        if begins or record.beats > before or not known[key]:
            # A record of one process can come after a record of what another process did later.
            latest = max(latest, ago(at, record.at, record.beat_at) if record.beats else at)
            found.append((latest, finished))
    return found


def _sensed(record: Record, edges: Array, absent: Mask, gone: Sequence[float]) -> list[Panel]:
    """Return the panels of the readings of process, device, memory and machine.

    `absent`: the cells without a process, at whose edges `gone` no line of a process goes on.
    """

    def of(kind: type, take: Callable[[Any], float | None]) -> Points:
        name = str(kind.__struct_config__.tag)  # type: ignore[attr-defined]  # every reading is a Struct
        return points((at, take(reading)) for at, reading in record.readings.get(name, ()))

    def level(name: str, kind: type, take: Callable[[Any], float | None]) -> list[Series]:
        return _series(name, mean(of(kind, take), edges))

    def own(values: Sequence[Array]) -> Array:
        return np.where(absent, np.nan, total(values, edges))

    trees = record.readings.get("process", ())
    used = by_process((at, seen.pid, seen.cpu) for at, seen in trees if isinstance(seen, Process))
    footprints = by_process(
        (at, seen.pid, seen.rss if seen.footprint is None else seen.footprint)
        for at, seen in trees
        if isinstance(seen, Process)
    )
    cores = own([rate(each, edges, gone) for each in used])
    level_of = followed if footprints[1:] else mean  # levels of several processes are added up between readings
    memory = own([level_of(each, edges, gone) for each in footprints])
    pressure = of(Memory, _pressure)  # of macOS three levels, with nothing between them
    steps = np.where(is_known(pressure.at, edges), held(pressure, edges), np.nan)
    swapped = rate(of(Memory, lambda seen: seen.swap_outs), edges)
    return [
        Panel("cpu", "Processor of the training", "cores", _series("cores", cores), group=PROCESSOR),
        Panel("idle", "Processor of the machine", "share",
              level("idle", Machine, lambda seen: seen.idle), group=PROCESSOR),
        Panel("gpu", "GPU", "share", level("busy", Device, lambda seen: seen.utilisation), group=PROCESSOR),
        Panel("power", "Power of the GPU", "watts",
              level("drawn", Device, lambda seen: seen.power), group=PROCESSOR),
        Panel("gpumem", "Memory of the GPU", "bytes",
              level("in use", Device, lambda seen: seen.memory), group=MEMORY),
        Panel("memory", "Memory of the training", "bytes", _series("footprint", memory), group=MEMORY),
        Panel("available", "Memory of the machine", "bytes",
              level("available", Memory, lambda seen: seen.available), group=MEMORY),
        Panel("pressure", "Memory pressure", "share", _series("pressure", steps), group=MEMORY),
        Panel("swap", "Swap", "bytes",
              level("in use", Memory, lambda seen: seen.swap_used) + _series("written a second", swapped),
              group=MEMORY),
    ]  # fmt: skip


def _pressure(seen: Memory) -> float | None:
    """Return the level of macOS, else the share of Linux."""
    return PRESSURE.get(seen.pressure or "", seen.stall_some)


def leading(record: Record) -> Led:
    """Return the probe's records of one process at a time: one that trains, while it sends them, then the next."""
    last = {(heartbeat.attempt, heartbeat.pid): at for at, heartbeat in record.heartbeat}
    trains = {(heartbeat.attempt, heartbeat.pid) for _, heartbeat in record.heartbeat if heartbeat.beats}
    kept: list[tuple[float, Heartbeat]] = []
    present: tuple[int, int] | None = None
    for at, heartbeat in record.heartbeat:
        key = (heartbeat.attempt, heartbeat.pid)
        over = present is None or present[0] != key[0] or at > last[present]
        if over or (key in trains and present not in trains):
            present = key
        if key == present:
            kept.append((at, heartbeat))
    return kept


def phases(record: Record, led: Led, attempts: Sequence[AttemptRow]) -> list[tuple[str, float, float]]:
    """Return the phases as (group, begin, end); one too short to be visible is added to the one before it."""
    narrow = max(FINEST, (record.last - record.first) / SPANS)
    ends = {attempt.number: attempt.ended or record.last for attempt in attempts}
    spans: list[tuple[int, str, float, float]] = []
    groups = groupby(led, key=lambda pair: (pair[1].attempt, GROUPS.get(pair[1].phase, "outside")))
    begins = [(key, next(group)[0]) for key, group in groups]
    for ((attempt, kind), began), (following, until) in pairwise([*begins, ((0, ""), 0.0)]):
        ended = max(began, until if following[0] == attempt else ends.get(attempt, began))
        last = spans[-1] if spans else None
        if last and last[0] == attempt and (last[1] == kind or ended - began < narrow):
            spans[-1] = (attempt, last[1], last[2], ended)
        else:
            spans.append((attempt, kind, began, ended))
    return [span[1:] for span in spans]


def epoch_beginnings(led: Led) -> list[tuple[float, int]]:
    """Return when each epoch began, with its number from 1; again for an epoch that an attempt resumed."""
    found: list[tuple[float, int]] = []
    before: tuple[int, int, int] | None = None
    for at, heartbeat in led:
        here = (heartbeat.attempt, heartbeat.fits, heartbeat.epoch)
        if heartbeat.epoch >= 0 and heartbeat.beats and here != before:
            # The first record of an epoch can come after its first batch ended; that batch is of this epoch.
            found.append((min(at, ago(at, heartbeat.at, heartbeat.beat_at)), heartbeat.epoch + 1))
            before = here
    step = -(-len(found) // EPOCHS) or 1
    return found[::step]


def redone(record: Record) -> list[Span]:
    """Return when batches were trained that an earlier attempt had trained before, as core.ledger counts them."""
    spans: list[Span] = []
    since: float | None = None
    for at, _, ledger in record.steps:
        again = ledger.trains and ledger.interruption is not None
        if again and since is None:
            since = at
        elif not again and since is not None:
            spans.append((since, at))
            since = None
    return spans if since is None else [*spans, (since, record.last)]


def absence_spans(attempts: Sequence[AttemptRow]) -> list[Span]:
    """Return the times between two attempts, when there was no process of the training."""
    return [(min(one.began if one.ended is None else one.ended, after.began), after.began)
            for one, after in pairwise(attempts)]  # fmt: skip


def loss_points(record: Record, trained: Sequence[tuple[float, Heartbeat]]) -> list[tuple[str, Points]]:
    """Return the loss of each training with its name.  `trained`: the probe's records with a new batch or loss."""
    known = [(at, heartbeat) for at, heartbeat in trained if heartbeat.loss is not None]
    whose = _trainings(record, [(heartbeat.attempt, heartbeat.pid) for _, heartbeat in known])
    each: dict[int, list[tuple[float, float | None]]] = {}
    for at, heartbeat in known:
        number = whose[heartbeat.attempt, heartbeat.pid]
        each.setdefault(number, []).append((ago(at, heartbeat.at, heartbeat.beat_at), heartbeat.loss))
    return [(LOSS if len(each) == 1 else f"training {number}", points(sorted(pairs))) for number, pairs in each.items()]


def epoch_lines(record: Record) -> dict[str, dict[str, Points]]:
    """Return the results of epochs as lines by chart and name: a metric stands with its validation."""
    notes = [(at, what) for at, what in record.happened if isinstance(what, ProbeNote) and what.kind == EPOCH]
    whose = _trainings(record, [(note.attempt, note.pid) for _, note in notes])
    several = len(set(whose.values())) > 1
    found: dict[str, dict[str, list[tuple[float, float | None]]]] = {}
    for at, note in notes:
        for name, value in epoch_values(note.facts).items():
            if name == LOSS:
                continue  # the probe's records have it more often
            base = name.removeprefix(VALIDATION)
            chart = LOSS if base == LOSS else LEARNING_RATE if name in RATES else base
            line = f"{name} of training {whose[note.attempt, note.pid]}" if several else name
            found.setdefault(chart, {}).setdefault(line, []).append((at, value))
    return {chart: {name: points(pairs) for name, pairs in each.items()} for chart, each in found.items()}


def _trainings(record: Record, processes: Sequence[EpochProcess]) -> dict[EpochProcess, int]:
    """Return the number of the training of each process, from 1."""
    places = {
        (what.attempt, what.pid): what.place
        for _, what in record.happened
        if isinstance(what, ProbeConnected) and what.place
    }
    keys: dict[str, int] = {}
    whose: dict[EpochProcess, int] = {}
    for process in dict.fromkeys(processes):
        # Without a place, the first training of an attempt is taken for the first one of the attempt before.
        order = sum(attempt == process[0] for attempt, _ in whose)
        whose[process] = keys.setdefault(places.get(process, f"#{order}"), len(keys) + 1)
    return whose
