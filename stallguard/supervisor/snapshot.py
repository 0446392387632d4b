"""The state of a live run for whoever asks: one plain value.  Pure; may not ask anything of the run."""

from __future__ import annotations

from typing import Any

import msgspec

from stallguard.core import lost, measures
from stallguard.core.history import History
from stallguard.core.run import Run, beats, is_muted
from stallguard.core.training import Over, Training
from stallguard.core.verdicts import Judgement
from stallguard.core.words import limit

SCHEMA = 1
LATELY = 15.0  # seconds over which a pace is measured
OVER = ("number", "pid", "place", "command", "how", "batches", "fits", "seconds")
SENSORS = ("process", "device", "memory", "machine", "files")


def snapshot(name: str, run: Run | None, now: float) -> dict[str, Any]:
    """Return what `stallguard status` shows.  `now`: monotonic seconds."""
    if run is None:
        return {"schema": SCHEMA, "run": name, "state": "new"}
    heard, judgement = run.history.heard, run.judge.judgement
    return {
        "schema": SCHEMA,
        "run": name,
        "state": run.state,
        "attempt": run.attempt,
        "pid": run.pid,
        "factor": run.factor,
        "device": run.device,
        "seconds": round(now - run.began, 1),
        "batches": beats(run),
        "silent": round(max(0.0, now - judgement.since), 1) if judgement.since else None,
        "judgement": judged(judgement),
        "progress": msgspec.to_builtins(heard) if heard else None,
        "readings": {name: msgspec.to_builtins(reading) for name, reading in latest(run).items()},
        "rates": {"batches": pace(run.history), "cpu": measures.cpu(run.history, now)},
        "findings": msgspec.to_builtins(run.findings),
        "incidents": run.totals.incidents,
        "lost": round(lost.total(run.lost, now), 1),
        "muted": round(run.quiet_until - now, 1) if is_muted(run) else None,
        "trainings": [over(one) for one in run.over] + [
            living(one, run, now) for one in run.trainings if one.trains and not one.over
        ],
    }  # fmt: skip


def over(one: Over) -> dict[str, Any]:
    """Return what is shown of a training that is over."""
    told: dict[str, Any] = msgspec.to_builtins(one)
    return {name: told.get(name, getattr(one, name)) for name in OVER}


def living(one: Training, run: Run, now: float) -> dict[str, Any]:
    """Return what is shown of a training that lives; `progress` is its newest record."""
    judgement = one.judge.judgement
    return {
        "number": one.number,
        "pid": one.pid,
        "place": one.place,
        "command": one.command,
        "how": "",
        "in_focus": one.key == run.focus,
        "judgement": judged(judgement),
        "batches": one.batches,
        "seconds": round(now - one.began, 1),
        "silent": round(max(0.0, now - judgement.since), 1) if judgement.since else None,
        "rate": pace(one.history),
        "progress": msgspec.to_builtins(one.heard) if one.heard else None,
    }


def judged(judgement: Judgement) -> dict[str, Any]:
    """Return what is shown of a judgement; `threshold` is None where no silence of the phase is a stall."""
    shown: dict[str, Any] = msgspec.to_builtins(judgement)
    if "threshold" in shown:
        shown["threshold"] = limit(judgement.threshold)
    return shown


def pace(history: History) -> float | None:
    """Return the batches a second of the last seconds; None where too little was heard."""
    heard = history.heard
    before = next((old for old in history.heards if heard and heard.at - old.at <= LATELY), None)
    if heard is None or before is None or heard.at <= before.at:
        return None
    return (heard.beats - before.beats) / (heard.at - before.at)


def latest(run: Run) -> dict[str, Any]:
    """Return the newest reading of each sensor, by its name."""
    trails = {name: getattr(run.history, name) for name in SENSORS}
    return {name: trail[-1].reading for name, trail in trails.items() if trail}
