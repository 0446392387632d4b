"""Makes a small recording for the suite of the journal of a run: what the core needs to decide the same again.

It has the events from BEFORE seconds before the longest silence to what was done about it, without names of runs and
paths.  Readings are thinned, but only as far as the core of today decides the same at about the same time.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from stallguard.core import fold
from stallguard.core.actions import Announce, Collect, Signal
from stallguard.core.events import AnyEvent
from stallguard.core.limits import Limits
from stallguard.storage.journal import INPUTS

BEFORE, AFTER = 20.0, 3.0  # seconds
LONGEST = 150.0  # seconds of a silence that nothing is done about: by then it would have been
ALWAYS = frozenset({"attempt.started", "probe.connected", "output.matched", "attempt.exited", "evidence.ready"})
LEFT_OUT = frozenset({"probe.profile", "probe.note", "clock.ticked"})
PERIODS = (2.0, 1.0, 0.5, 0.0)  # seconds between two readings of a sensor, the thinnest first
THINNED = frozenset({"probe.heartbeat", "output.matched"})
SLOW = frozenset({"memory", "machine", "files"})  # sensors whose readings change little
QUIET = 1.0  # the least of them if nothing is decided, so that nothing shows what thinning changes
JUDGED = frozenset({"training.suspected", "training.stalled"})
TICK = 0.7  # seconds
SAME = 2.1  # seconds by which a decision can move: until the next reading
DAY = "2026-01-01T00:00:00.000Z"
Line = dict[str, Any]


def window(lines: Sequence[Line]) -> tuple[float, float]:
    """Return the first and the last second of what is worth keeping; a silence that ends a run counts as well."""
    progress = [
        (line["clock"], line.get("progress_clock", 0.0)) for line in lines if line["event"] == "probe.heartbeat"
    ]
    acted = next((line["clock"] for line in lines if _is_end(line)), None)
    if acted is not None:
        last = max((at for clock, at in progress if clock <= acted), default=acted)
        return last - BEFORE, acted + AFTER
    ats = sorted({at for _, at in progress if at})
    gaps = [(later - at, at, later) for at, later in itertools.pairwise(ats)]
    _, since, until = max(gaps, default=(0.0, ats[0] if ats else 0.0, ats[-1] if ats else 0.0))
    return since - BEFORE, min(until + AFTER, since + LONGEST)


def _is_end(line: Line) -> bool:
    """Return whether something was done, or went wrong: a script that ends well is left at its own time."""
    return line["event"] == "attempt.stopping" or (line["event"] == "attempt.exited" and line.get("code") != 0)


def decided(lines: Sequence[Line]) -> list[tuple[float, str]]:
    """Return what the core of today does after these lines, and when."""
    events = [msgspec.json.decode(json.dumps(line).encode(), type=AnyEvent) for line in lines]
    run, done = fold.begin(events[0].at), []
    for event in events:
        run, actions = fold.advance(run, event, Limits())
        done += [(event.at, type(one).__name__) for one in actions if isinstance(one, Collect | Signal)]
        done += [(event.at, one.message) for one in actions if isinstance(one, Announce) and one.message in JUDGED]
    return done


def thinned(lines: Sequence[Line], period: float) -> list[Line]:
    """Keep a reading of each sensor a period, fewer of SLOW ones, and as many records of a training that stands still.

    What is left out becomes a tick, if nothing else shows the core the time: see `longest_tick` of its limits.
    """
    last: dict[tuple[object, ...], float] = {}
    kept = []
    for line in lines:
        sensor = line.get("reading", {}).get("sensor", "")
        key = (sensor, line["event"], *(line.get(name) for name in ("pid", "beats", "changes", "trains", "wait")))
        is_slow = sensor in SLOW or line["event"] == "output.matched"
        least = period * (5 if is_slow else 1) if sensor or line["event"] in THINNED else 0.0
        if line["clock"] - last.get(key, -least) >= least:
            last[key] = line["clock"]
            kept.append(line)
        elif line["clock"] - kept[-1]["clock"] >= TICK:
            kept.append({name: line[name] for name in ("time", "clock", "level")} | {"event": "clock.ticked"})
    return kept


def plain(line: Line) -> Line:
    """Return a line without what belongs to a machine or a user."""
    own = {name: value for name, value in line.items() if name not in ("message", "facts", "command")}
    where = own.get("where")
    return {**own, "time": DAY, "run": "", **({"where": Path(where).name} if where else {})}


def recorded(path: Path, into: Path) -> str:
    """Write the recording of a journal that the bench kept; return what was written."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    since, until = window(lines)
    inputs = [line for line in lines if line["event"] in INPUTS - LEFT_OUT and line["clock"] <= until]
    cut = [plain(line) for line in inputs if line["clock"] >= since or line["event"] in ALWAYS]
    if not cut:
        return f"{path.name}: no training began"
    expected = decided(cut)
    period, chosen = next(
        (period, one) for period in PERIODS
        if (expected or period <= QUIET) and _is_same(decided(one := thinned(cut, period)), expected)
    )  # fmt: skip
    into.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in chosen)
    name = f"{path.name.removesuffix('.jsonl.gz')}.jsonl"
    (into / name).write_text(text, "utf-8")
    does = ", ".join(f"{what} after {at - cut[0]['clock']:.1f} s" for at, what in expected) or "nothing is done"
    return f"{name}: {len(text) // 1000} kB, a reading each {period:g} s; {does}"


def _is_same(found: list[tuple[float, str]], expected: list[tuple[float, str]]) -> bool:
    if [name for _, name in found] != [name for _, name in expected]:
        return False
    return all(abs(at - due) <= SAME for (at, _), (due, _) in zip(found, expected, strict=True))
