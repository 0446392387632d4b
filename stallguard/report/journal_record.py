"""What a journal holds, decoded once and put on the clock of the wall: the material of every report.

The monotonic clock stands still while a machine sleeps and begins anew when it starts, so a report's times are
those that the lines themselves carry.  Lines that are cut, foreign or of a later schema are passed by.
`Record.steps` and `Record.spent` are the ledger of the run: the same seconds as the supervisor's core counted, by the
same function.
`clock`, `elapsed` and `wall` are the one form of times for the report, `logs` and `replay`.
This module must not interpret.
"""

from __future__ import annotations

import bisect
import datetime as dt
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from stallguard.core import ledger
from stallguard.core.actions import Action, Announce, AnyAction
from stallguard.core.events import AnyEvent, Event, Heartbeat, Sampled, Ticked
from stallguard.core.ledger import Ledger
from stallguard.core.readings import AnyReading
from stallguard.core.time_spent import Spent
from stallguard.errors import UNREADABLE
from stallguard.report import narrative
from stallguard.storage import journal

Happening = Event | Action
Step = tuple[float, Happening, Ledger]
_SAMPLES = tuple(b'"event":"%s"' % str(one.__struct_config__.tag).encode() for one in (Heartbeat, Sampled))


@dataclass(frozen=True)
class Record:
    """A journal in memory.  All times are seconds since the epoch, never falling.

    `happened`: everything but records of the probe and readings, in order; `readings`: by the sensor's name.
    `in_order`: the probe's records and what happened, as the journal has them, and `clocks` their times on the
    supervisor's clock; `clock_span`: those of the first and the last line.
    """

    heartbeat: list[tuple[float, Heartbeat]]
    readings: dict[str, list[tuple[float, AnyReading]]]
    happened: list[tuple[float, Happening]]
    first: float
    last: float
    in_order: list[tuple[float, Happening]]
    clocks: Sequence[float]
    clock_span: tuple[float, float]

    def heartbeat_before(self, at: float, pid: int = 0) -> tuple[float, Heartbeat] | None:
        """Return the newest record of a probe at a time: that of process `pid`, or of any (0)."""
        index = bisect.bisect_right(self.heartbeat, at, key=lambda pair: pair[0])
        before = (self.heartbeat[place] for place in range(index - 1, -1, -1))
        return next((pair for pair in before if not pid or pair[1].pid == pid), None)

    @cached_property
    def steps(self) -> list[Step]:
        """What happened with its time (seconds since the epoch), each with the ledger after it.

        Of a night these are thirty thousand, and take 0.15 s.
        """
        known, found = ledger.Ledger(since=self.clock_span[0]), []
        for (when, what), at in zip(self.in_order, self.clocks, strict=True):
            known = ledger.after(known, at, what)
            found.append((when, what, known))
        return found

    @property
    def spent(self) -> Spent:
        """Where the time of the run went, until the last line of its journal."""
        last = self.steps[-1][2] if self.steps else ledger.Ledger(since=self.clock_span[0])
        return ledger.spent(last, self.clock_span[1])


class _Line(msgspec.Struct):
    time: dt.datetime
    event: str
    clock: float = 0.0
    facts: dict[str, str] = {}


def read(path: Path, *, samples: bool = True) -> Record:
    """Return what the journal at `path` holds; an empty record if there is none.

    `samples`: with the probe's records and the readings, which are nearly all lines.
    """
    # A night has a hundred thousand lines, so each is decoded by its type.
    decode_line, decode_value = (msgspec.json.Decoder(_Line).decode, msgspec.json.Decoder(AnyEvent | AnyAction).decode)
    heartbeat: list[tuple[float, Heartbeat]] = []
    readings: dict[str, list[tuple[float, AnyReading]]] = defaultdict(list)
    happened: list[tuple[float, Happening]] = []
    in_order: list[tuple[float, Happening]] = []
    first, last = 0.0, 0.0
    clocks, clock_span = array("d"), (0.0, 0.0)
    for raw in (raw for part in journal.parts(path) for raw in journal.lines(part)):
        value: Any
        if not samples and any(tag in raw for tag in _SAMPLES):
            continue
        try:
            line = decode_line(raw)
            at, is_message = line.time.timestamp(), line.event in narrative.MESSAGES
            value = Announce(line.event, line.facts) if is_message else decode_value(raw)
        except (OverflowError, *UNREADABLE):
            continue
        last = max(last, at)
        clock_span = (clock_span[0] if first else line.clock, line.clock)
        first = first or last
        if isinstance(value, Heartbeat):
            heartbeat.append((last, value))
            in_order.append(heartbeat[-1])
            clocks.append(line.clock)
        elif isinstance(value, Sampled):
            readings[str(value.reading.__struct_config__.tag)].append((last, value.reading))
        elif not isinstance(value, Ticked):
            happened.append((last, value))
            in_order.append(happened[-1])
            clocks.append(line.clock)
    return Record(heartbeat, dict(readings), happened, first, last, in_order, clocks, clock_span)


def ago(at: float, now: float, then: float) -> float:
    """Return when `then` was, for an event that came at `at` when the monotonic clock showed `now`."""
    return at - max(0.0, now - then)


def clock(first: float, last: float, zone: dt.tzinfo | None = None) -> Callable[[float], str]:
    """Return how a time of a run is written: with its day only if the run saw more than one.

    `first`, `last`: of the run, seconds since the epoch; `zone`: of the clock, None for the system's.
    """
    days = {dt.datetime.fromtimestamp(at, zone).date() for at in (first, last)}
    form = "%H:%M:%S" if len(days) == 1 else "%a %H:%M:%S"
    return lambda at: dt.datetime.fromtimestamp(at, zone).strftime(form)


def elapsed(seconds: float) -> str:
    """Return seconds since a beginning as hours, minutes, seconds and tenths: 1:05:07.3."""
    tenths = round(max(seconds, 0.0) * 10)
    minutes, rest = divmod(tenths, 600)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest // 10:02d}.{rest % 10}"


def wall(at: float, known: Sequence[tuple[float, float]]) -> float:
    """Return the seconds since the epoch of a time of the supervisor's clock, which stands still while a Mac sleeps.

    `known`: pairs of both, in order, at least one; the one before `at` counts.
    """
    place = bisect.bisect_right(known, at, key=lambda pair: pair[0])
    monotonic, epoch = known[max(place - 1, 0)]
    return epoch + at - monotonic
