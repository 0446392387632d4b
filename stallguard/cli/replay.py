"""`stallguard replay`: decide a recorded night again, with other settings if you like."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import click
import msgspec

from stallguard import config, journal, outcome, traces
from stallguard.core.limits import Limits
from stallguard.core.words import DOING, duration
from stallguard.paths import RunDir, find_run
from stallguard.report import replay
from stallguard.report.replay import Deed, Replayed, Slow, Verdict

_WORDS = {"suspect": "would suspect", "stalled": "would call it a stall", "recovered": "would see it recover"}


@click.command("replay")
@click.argument("what", metavar="[RUN|TRACE]", required=False)
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any setting, as `config show` names it."
)
@click.option("--compare", is_flag=True, help="Show the settings as they are beside those of --set.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(what: str | None, sets: tuple[str, ...], compare: bool, as_json: bool) -> None:
    """Tell when a recorded RUN (default: the newest) or TRACE would have been suspected, dumped and restarted."""
    path = _source(what)
    changed = config.parse_set(sets)
    choices: list[dict[str, str]] = [{}, changed] if compare else [changed]
    then = _recorded(path)
    found = [(choice, _replayed(path, _limits({**then, **choice}))) for choice in choices]
    if as_json:
        click.echo(msgspec.json.encode(_as_json(path, found, compare=compare)))
        return
    for choice, result in found:
        if compare:
            click.echo(
                "with "
                + (", ".join(f"{key}={raw}" for key, raw in choice.items()) or "the settings as they are")
            )
        for line in _lines(result):
            click.echo(f"  {line}" if compare else line)


def _source(what: str | None) -> Path:
    if what is not None and Path(what).is_file():
        return Path(what)
    return find_run(what).journal


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


def _replayed(path: Path, limits: Limits) -> Replayed:
    if traces.is_trace(path):
        return replay.replay(traces.events(traces.read(path)), limits.detector)
    return replay.replay_run(journal.events(path), limits)


def _as_json(path: Path, found: list[tuple[dict[str, str], Replayed]], *, compare: bool) -> dict[str, Any]:
    results = [{"settings": choice, **msgspec.to_builtins(result)} for choice, result in found]
    head = {"schema": 1, "source": str(path)}
    return head | ({"compared": results} if compare else results[0])


def _lines(result: Replayed) -> list[str]:
    told: list[Verdict | Slow | Deed] = [*result.verdicts, *result.slowdowns, *result.actions]
    lines = [f"{one.at:10.2f} s  {_words(one)}" for one in sorted(told, key=lambda one: one.at)]
    return lines or [f"nothing: healthy all along ({result.events} events)"]


def _words(one: Verdict | Slow | Deed) -> str:
    if isinstance(one, Deed):
        return f"would {one.action}: {one.why}"
    if isinstance(one, Slow):
        return (
            f"slow: {one.ratio:.1f} x the usual batch time, {one.cause or 'cause unknown'}"
            if one.ratio > 1
            else "not slow any more"
        )
    if one.step == "recovered":
        return f"{_WORDS[one.step]} after {duration(one.gap)}"
    doing = "the process is stopped" if one.cause == "stopped" else DOING.get(one.cause, one.cause)
    return f"{_WORDS[one.step]} ({one.row}): no progress for {duration(one.gap)}, {doing}"
