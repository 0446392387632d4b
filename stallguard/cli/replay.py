"""`stallguard replay`: decide a recorded night again, with other settings if you like."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from stallguard import config, outcome, traces
from stallguard.core.limits import Limits
from stallguard.core.words import DOING, STOPPED, duration, place
from stallguard.paths import RunDir, find_run
from stallguard.report import recorded, replay
from stallguard.report.clock import clock, elapsed, wall
from stallguard.report.plain import plain
from stallguard.report.recorded import Recording
from stallguard.report.replay import Deed, Replayed, Slow, Verdict

SCHEMA = 2
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


class Source(NamedTuple):
    """What is replayed: a recorded run, or a trace, which has neither orders nor a place on the wall's clock."""

    path: Path
    recording: Recording | None

    @property
    def began(self) -> float | None:
        """When it began, seconds since the epoch; None if nobody knows."""
        walls = self.recording.walls if self.recording else []
        return walls[0][1] if walls else None


@click.command("replay")
@click.argument("what", metavar="[RUN|TRACE]", required=False)
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any setting, as `config show` names it."
)
@click.option("--compare", is_flag=True, help="Show the settings as they are beside those of --set.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(what: str | None, sets: tuple[str, ...], compare: bool, as_json: bool) -> None:
    """Tell when a recorded RUN (default: the newest) or TRACE would have been suspected, dumped and restarted."""
    source = _source(what)
    changed = config.parse_set(sets)
    choices: list[dict[str, str]] = [{}, changed] if compare else [changed]
    then = _recorded(source.path)
    found = [(choice, _replayed(source, _limits({**then, **choice}))) for choice in choices]
    if as_json:
        click.echo(msgspec.json.encode(_as_json(source, found, compare=compare)))
        return
    if source.began is not None:
        here = dt.datetime.fromtimestamp(source.began).astimezone()
        name = source.path.parent.name if _is_of_a_run(source.path) else source.path.name
        click.echo(plain(f"{name}, begun on {here:%A, %d %B %Y, %H:%M:%S} {here.tzname()}"))
    for choice, result in found:
        if compare:
            click.echo(
                "with "
                + (", ".join(f"{key}={raw}" for key, raw in choice.items()) or "the settings as they are")
            )
        for line in _lines(source, result):
            click.echo(f"  {line}" if compare else line)


def _source(what: str | None) -> Source:
    path = Path(what) if what is not None and Path(what).is_file() else find_run(what).journal
    return Source(path, None if traces.is_trace(path) else recorded.read(path))


def _is_of_a_run(path: Path) -> bool:
    return path == RunDir(path.parent).journal


def _recorded(path: Path) -> dict[str, Any]:
    """Return the settings that the recorded run was given; none for a trace."""
    asked = outcome.asked(RunDir(path.parent))
    if asked is None:
        return {}
    given = [name for name, origin in asked.origins.items() if origin != config.DEFAULT]
    return {name: reduce(dict.__getitem__, name.split("."), asked.config) for name in given}


def _limits(changed: Mapping[str, Any]) -> Limits:
    """Return the limits of the settings that hold here, with some of them changed."""
    return config.load(changed, os.environ, Path.cwd()).config.limits()


def _replayed(source: Source, limits: Limits) -> Replayed:
    if source.recording is None:
        return replay.replay(traces.events(traces.read(source.path)), limits.detector)
    return replay.replay_run(source.recording.events, limits, orders=source.recording.orders)


def _as_json(
    source: Source, found: list[tuple[dict[str, str], Replayed]], *, compare: bool
) -> dict[str, Any]:
    results = [{"settings": choice, **msgspec.to_builtins(result)} for choice, result in found]
    began = None if source.began is None else dt.datetime.fromtimestamp(source.began, dt.UTC).isoformat()
    head = {"schema": SCHEMA, "source": str(source.path), "began": began}
    return head | ({"compared": results} if compare else results[0])


def _lines(source: Source, result: Replayed) -> list[str]:
    told: list[Verdict | Slow | Deed] = [*result.verdicts, *result.slowdowns, *result.actions]
    told.sort(key=lambda one: one.at)
    times = _times(source, [one.at for one in told])
    lines = [plain(f"{time}  {_words(one)}") for time, one in zip(times, told, strict=True)]
    return lines or [f"nothing: healthy all along ({result.events} events)"]


def _times(source: Source, seconds: list[float]) -> list[str]:
    """Return times as the user reads them: of the clock on the wall, if it is known, and since the beginning."""
    since = [f"+{elapsed(at)}" for at in seconds]
    if source.recording is None or source.began is None or not seconds:
        return since
    walls = source.recording.walls
    at = [wall(walls[0][0] + one, walls) for one in seconds]
    shown = clock(source.began, max(at))
    return [f"{shown(time)}  {after}" for time, after in zip(at, since, strict=True)]


def _words(one: Verdict | Slow | Deed) -> str:
    if isinstance(one, Deed):
        return f"{DEEDS[one.action]}: {one.why}"
    if isinstance(one, Slow):
        return (
            f"slow: {one.ratio:.1f} x the usual batch time, {one.cause or 'cause unknown'}"
            if one.ratio > 1
            else "not slow any more"
        )
    if one.step == "recovered":
        return f"{STEPS[one.step]} after {duration(one.gap)}"
    doing = STOPPED if one.cause == "stopped" else DOING.get(one.cause, DOING["unknown"])
    return f"{STEPS[one.step]}: no progress for {duration(one.gap)} {place(one.row, one.phase)}; {doing}"
