"""What the trainings of a run learned: their losses, and the results of their epochs with validation and learning rate.

A training is a place (probe/process_key.py), which the next attempt finds again: its line goes on there.  Names of
results are the script's own; those that are no plain names are left out.  Pure: a record in, points out.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallguard.core.events import Heartbeat, ProbeConnected, ProbeNote
from stallguard.report.journal_record import Record, ago
from stallguard.report.programs import EPOCH, epoch_values
from stallguard.report.time_series import Points, points

LOSS, LEARNING_RATE = "loss", "Learning rate"
RATES = ("learning_rate", "lr")  # Keras 3, Keras 2
VALIDATION = "val_"

Process = tuple[int, int]  # attempt, pid


def losses(record: Record, trained: Sequence[tuple[float, Heartbeat]]) -> list[tuple[str, Points]]:
    """Return the loss of each training with its name.  `trained`: the probe's records with a new batch or loss."""
    known = [(at, heartbeat) for at, heartbeat in trained if heartbeat.loss is not None]
    whose = _trainings(record, [(heartbeat.attempt, heartbeat.pid) for _, heartbeat in known])
    each: dict[int, list[tuple[float, float | None]]] = {}
    for at, heartbeat in known:
        number = whose[heartbeat.attempt, heartbeat.pid]
        each.setdefault(number, []).append((ago(at, heartbeat.at, heartbeat.beat_at), heartbeat.loss))
    return [
        (LOSS if len(each) == 1 else f"training {number}", points(sorted(pairs)))
        for number, pairs in each.items()
    ]


def lines(record: Record) -> dict[str, dict[str, Points]]:
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


def _trainings(record: Record, processes: Sequence[Process]) -> dict[Process, int]:
    """Return the number of the training of each process, from 1."""
    places = {
        (what.attempt, what.pid): what.place
        for _, what in record.happened
        if isinstance(what, ProbeConnected) and what.place
    }
    keys: dict[str, int] = {}
    whose: dict[Process, int] = {}
    for process in dict.fromkeys(processes):
        # Without a place, the first training of an attempt is taken for the first one of the attempt before.
        order = sum(attempt == process[0] for attempt, _ in whose)
        whose[process] = keys.setdefault(places.get(process, f"#{order}"), len(keys) + 1)
    return whose
