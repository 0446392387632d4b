"""What the accelerator did in a stretch of time: of its readings, the lowest, the usual and the highest of each figure.

The diagnosis, the evidence of an incident, the report and the status show the same account.  What no reading says is
None and is left out, never zero.  This module must not judge: core.diagnosis.clues.device does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import median, median_low
from typing import TypeVar

import msgspec

from stallguard.core.readings import Device
from stallguard.core.text import counted, quantity

# Some figures are read each 4 s (host/linux/nvml.py), and are of the time before: a gap's first readings show the work.
SETTLED = 6.0
SAME = 0.1  # share of the highest by which a figure can vary and is still one number in a sentence

# Numbers of critical errors, in words: NVIDIA's document "Xid Errors" of driver 580.  After the first five, which come
# from what a program did, the device is sound (the file internal/rm/health.go of NVIDIA/k8s-device-plugin).
XIDS = {
    13: "a kernel failed", 31: "a kernel used an invalid address", 43: "its work was stopped",
    45: "work was removed after an error or the end of a program", 109: "a switch of programs took too long",
    48: "a memory error that cannot be corrected", 62: "its own controller stopped",
    63: "a part of its memory is retired", 64: "a part of its memory cannot be retired",
    74: "an error of NVLink", 79: "it fell off the bus",
    94: "a memory error that ended one program", 95: "a memory error that can have changed other programs",
    119: "its firmware does not answer", 120: "an error of its firmware",
}  # fmt: skip

T = TypeVar("T")


class Span(msgspec.Struct, frozen=True):
    """The values of one figure."""

    low: float  # the lowest
    usual: float  # the median
    high: float  # the highest


class DeviceAccount(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the accelerator did from its first to its last reading in a stretch of time; null: not known."""

    readings: int = 0  # readings that it is made of
    seconds: float = 0.0  # from the first to the last of them
    name: str | None = None  # of the device
    utilisation: Span | None = None  # share of the time in which it worked, 0..1
    memory_utilisation: Span | None = None  # share of the time in which its memory was read or written, 0..1
    sm_activity: Span | None = None  # share of its multiprocessors that had work, 0..1
    compute: Span | None = None  # share of the time in which this run's own processes computed on it, 0..1
    power: Span | None = None  # watts
    power_limit: float | None = None  # watts
    clock: Span | None = None  # MHz
    clock_limit: float | None = None  # MHz
    slowed_by: tuple[str, ...] = ()  # what kept its clock low in half of the readings or more
    memory: int | None = None  # bytes in use at the end
    others: int | None = None  # processes of other programs that used it in half of the readings or more
    used_by_run: bool | None = None  # this run had a context on it at the end
    moved: bool | None = None  # this run computed on it
    xids: int | None = None  # critical errors in this time
    xid: int | None = None  # number of the newest of them
    ecc_errors: int | None = None  # memory errors in this time that could not be corrected
    recoveries: int | None = None  # restarts of the device in this time
    lost: int | None = None  # devices that the driver had lost at the end


def account(readings: Iterable[tuple[float, Device]], since: float, until: float) -> DeviceAccount | None:
    """Return what the device did from `since` to `until`, by (time, reading) in order; None if there is no reading."""
    before: Device | None = None
    found: list[tuple[float, Device]] = []
    for at, reading in readings:
        if at < since:
            before = reading
        elif at <= until:
            found.append((at, reading))
    if not found:
        return None
    settled = [pair for pair in found if pair[0] >= since + SETTLED] or found
    seen, last = [reading for _, reading in settled], found[-1][1]
    counted_from = [reading for _, reading in found] if before is None else [before, *(reading for _, reading in found)]
    xids = _rise([one.xid_count for one in counted_from])
    words = Counter(word for one in seen for word in one.slowed_by or ())
    known = [one for one in seen if one.slowed_by is not None]
    others = [one.others for one in seen if one.others is not None]
    moves = [one.moved for one in seen if one.moved is not None]
    return DeviceAccount(
        readings=len(seen), seconds=settled[-1][0] - settled[0][0], name=_last(seen, lambda one: one.name),
        utilisation=_span([one.utilisation for one in seen]),
        memory_utilisation=_span([one.memory_utilisation for one in seen]),
        sm_activity=_span([one.sm_activity for one in seen]), compute=_span([one.compute for one in seen]),
        power=_span([one.power for one in seen]), power_limit=_last(seen, lambda one: one.power_limit),
        clock=_span([one.clock for one in seen]), clock_limit=_last(seen, lambda one: one.clock_limit),
        slowed_by=tuple(word for word, times in words.items() if 2 * times >= len(known)),
        memory=last.memory, others=median_low(others) if others else None, used_by_run=last.used_by_run,
        moved=any(moves) if moves else None, xids=xids, xid=last.xid if xids else None,
        ecc_errors=_rise([one.ecc_errors for one in counted_from]),
        recoveries=_rise([one.recoveries for one in counted_from]), lost=last.lost,
    )  # fmt: skip


def _span(values: Iterable[float | None]) -> Span | None:
    known = [value for value in values if value is not None]
    return Span(min(known), median(known), max(known)) if known else None


def _last(seen: Sequence[Device], take: Callable[[Device], T | None]) -> T | None:
    return next((value for one in reversed(seen) if (value := take(one)) is not None), None)


def _rise(counts: Iterable[int | None]) -> int | None:
    """Return by how much a count rose.  One that fell began again, with another stallguard or driver."""
    known = [count for count in counts if count is not None]
    return sum(max(0, later - before) for before, later in pairwise(known)) if known[1:] else None


def described(made: DeviceAccount) -> str:
    """Return the account as one line; empty if nothing is known."""
    parts = [
        made.utilisation and f"{_shares(made.utilisation)} busy",
        made.compute and f"{_shares(made.compute)} by this run",
        made.memory_utilisation and f"its memory {_shares(made.memory_utilisation)} busy",
        made.sm_activity and f"{_shares(made.sm_activity)} of its multiprocessors at work",
        made.memory is not None and f"{quantity(made.memory, 'bytes')} in use",
        made.power and f"{_of(made.power, made.power_limit)} W",
        made.clock and f"{_of(made.clock, made.clock_limit)} MHz",
        made.slowed_by and f"its clock is kept low by {' and '.join(made.slowed_by)}",
        made.others and f"{counted(made.others, 'other program')} on it",
        made.xids and f"{counted(made.xids, 'critical error')}, the newest {xid_words(made.xid)}",
        made.ecc_errors and f"{counted(made.ecc_errors, 'memory error')} that could not be corrected",
        made.recoveries and f"restarted {counted(made.recoveries, 'time')}",
        made.lost and f"{counted(made.lost, 'device')} lost by the driver",
    ]
    return ", ".join(part for part in parts if isinstance(part, str))


def xid_words(number: int | None) -> str:
    """Return the number of a critical error with its meaning, if that is known here."""
    meaning = XIDS.get(number or 0, "")
    return f"Xid {number} ({meaning})" if meaning else f"Xid {number}"


def _shares(span: Span) -> str:
    if span.high - span.low <= SAME:
        return f"{span.usual:.0%}"
    return f"{span.low:.0%} to {span.high:.0%}"


def _of(span: Span, limit: float | None) -> str:
    same = span.high - span.low <= SAME * span.high
    value = _number(span.usual) if same else f"{_number(span.low)} to {_number(span.high)}"
    return f"{value} of {_number(limit)}" if limit else value


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
