"""A replay as its user reads it: what is replayed, and what would have been done when, in the words of the log.

This module must not judge: report.replay has the core do it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stallguard.core.limits import Limits
from stallguard.core.messages import DOING, STOPPED, duration, place
from stallguard.core.text import counted
from stallguard.report import replay, replay_world
from stallguard.report.replay import Replayed, ReplayedAction, Slow, Verdict
from stallguard.report.replay_world import Recording
from stallguard.report.sanitize import plain
from stallguard.report.wall_time import clock, elapsed, wall
from stallguard.storage.paths import RunDir

STEPS = {
    "suspect": "would suspect a stall",
    "stalled": "would call it a stall",
    "recovered": "would see it recover",
}
DEEDS = {
    "dump": "would collect the evidence",
    "restart": "would restart the training",
    "give_up": "would end the training and give up",
    "finish": "would end the training",
    "kill": "would send SIGKILL",
    "end": "would end the run",
}

SCHEMA = 2


class ReplayOutput(msgspec.Struct, frozen=True):
    """What a replay found: once, or with --compare for the settings as they are and for others.

    All times (`at`, `act_at`) are seconds since the recording began.
    """

    schema: int
    source: str  # the file that was replayed
    began: str | None  # UTC, ISO 8601; null if no event was recorded
    compared: list[ReplayResult] | msgspec.UnsetType = msgspec.UNSET  # with --compare, in place of all below
    settings: dict[str, str] | msgspec.UnsetType = msgspec.UNSET  # that differ from those of the run
    verdicts: list[Verdict] | msgspec.UnsetType = msgspec.UNSET
    slowdowns: list[Slow] | msgspec.UnsetType = msgspec.UNSET
    actions: list[ReplayedAction] | msgspec.UnsetType = msgspec.UNSET
    events: int | msgspec.UnsetType = msgspec.UNSET  # that were decided about


class ReplayResult(msgspec.Struct, frozen=True):
    """What was found with some settings."""

    settings: dict[str, str]  # that differ from those of the run
    verdicts: list[Verdict]
    slowdowns: list[Slow]
    actions: list[ReplayedAction]
    events: int  # that were decided about


class Source(NamedTuple):
    """A recorded run that is replayed."""

    path: Path
    recording: Recording

    @property
    def began(self) -> float | None:
        """When it began, seconds since the epoch; None if no event was recorded."""
        walls = self.recording.walls
        return walls[0][1] if walls else None


def source(path: Path) -> Source:
    """Return the journal at `path`.  Raises StallguardError if it cannot be read."""
    return Source(path, replay_world.read(path))


def decide(what: Source, limits: Limits) -> Replayed:
    """Return what would have been announced and done by `limits`.  Raises StallguardError."""
    return replay.replay_run(what.recording.events, limits, orders=what.recording.orders)


def output(what: Source, found: Sequence[tuple[dict[str, str], Replayed]], *, compare: bool) -> ReplayOutput:
    """Return what `--json` prints.  `found`: settings that differ, and what was found with them."""
    began = None if what.began is None else dt.datetime.fromtimestamp(what.began, dt.UTC).isoformat()
    if compare:
        results = [ReplayResult(**msgspec.structs.asdict(one), settings=settings) for settings, one in found]
        return ReplayOutput(SCHEMA, str(what.path), began, compared=results)
    settings, one = found[0]
    return ReplayOutput(SCHEMA, str(what.path), began, settings=settings, **msgspec.structs.asdict(one))


def title(what: Source) -> str:
    """Return what is replayed and when it began; empty if no event was recorded."""
    if what.began is None:
        return ""
    here = dt.datetime.fromtimestamp(what.began).astimezone()
    is_of_a_run = what.path == RunDir(what.path.parent).journal
    name = what.path.parent.name if is_of_a_run else what.path.name
    return plain(f"{name}, begun on {here:%A, %d %B %Y, %H:%M:%S} {here.tzname()}")


def lines(what: Source, result: Replayed) -> list[str]:
    """Return what would have been announced and done, a line each, in the order of time."""
    entries: list[Verdict | Slow | ReplayedAction] = [*result.verdicts, *result.slowdowns, *result.actions]
    entries.sort(key=lambda one: one.at)
    times = [f"+{elapsed(one.at)}" for one in entries]
    if what.began is not None and entries:
        walls = what.recording.walls
        at = [wall(walls[0][0] + one.at, walls) for one in entries]
        of_day = clock(what.began, max(at))
        times = [f"{of_day(time)}  {since}" for time, since in zip(at, times, strict=True)]
    shown = []
    for time, one in zip(times, entries, strict=True):
        if isinstance(one, ReplayedAction):
            words = f"{DEEDS[one.action]}: {one.why}"
        elif isinstance(one, Slow):
            slow = f"slow: {one.ratio:.1f} x the usual batch time, {one.cause or 'cause unknown'}"
            words = slow if one.ratio > 1 else "not slow any more"
        elif one.step == "recovered":
            words = f"{STEPS[one.step]} after {duration(one.gap)}"
        else:
            doing = STOPPED if one.cause == "stopped" else DOING.get(one.cause, DOING["unknown"])
            silence = f"no progress for {duration(one.gap)} {place(one.row, one.phase)}"
            words = f"{STEPS[one.step]}: {silence}; {doing}"
        shown.append(plain(f"{time}  {words}"))
    return shown or [f"nothing: healthy all along ({counted(result.events, 'event')})"]
