"""`stallguard find-batch`: the largest batch that a training survives on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stallguard import config
from stallguard.cli._json import prints_json
from stallguard.cli._options import given, settings
from stallguard.cli.run import RunCommand
from stallguard.core.text import quantity
from stallguard.errors import StallguardError
from stallguard.storage import learned_store

if TYPE_CHECKING:  # completion must not wait for this import
    from stallguard.supervisor.batch_trial import TrialVerdict

SCHEMA = 1
NONE_SURVIVES = 1  # the exit code
UPWARDS = 16  # times the script's own batch: the largest size tried without --most


class Tried(msgspec.Struct, frozen=True, omit_defaults=True):
    """One trial.  `rows`: 0 if the size is not passed to the script."""

    factor: int
    survived: bool
    rows: int = 0
    trouble: str = ""
    batches: int = 0
    memory: int | None = None  # bytes of the training at most
    rate: float | None = None  # batches a second


class Output(msgspec.Struct, frozen=True):
    """The largest batch that survives: in rows if the script gets the size, else in parts.  0: none survives."""

    schema: int
    tries: list[Tried]
    rows: int | msgspec.UnsetType = msgspec.UNSET
    factor: int | msgspec.UnsetType = msgspec.UNSET  # parts of a batch; 1: the whole batch survives


@click.command("find-batch", cls=RunCommand, options_metavar="[OPTIONS] [--] COMMAND...")
@click.option(
    "--steps", type=click.IntRange(1), default=50, show_default=True, help="Batches that a size must survive."
)
@click.option(
    "--most", type=click.IntRange(1), help="Largest number of rows to try.  [16 times the script's batch]"
)
@prints_json("Print the result as JSON.", "stallguard.cli.find_batch:Output")
@settings()
@click.pass_context
def command(ctx: click.Context, /, steps: int, most: int | None, as_json: bool, **parameters: Any) -> None:
    """Find the largest batch that a training survives here; `run` uses it from then on.

    Each size is tried in a guarded run of its own that ends after some batches. If the size can be
    passed to the script (--batch-flag, --batch-env, or {batch} with --batch), more and fewer rows are tried, by
    bisection; else its batch whole and in 2, 4, 8 ... parts. Exit code 1 if no batch survives.

    \b
    Examples:
      stallguard find-batch train.py
      stallguard find-batch --batch-flag=--batch-size -- train.py --batch-size 512
    """  # noqa: D301 - click wants the real backspace
    words = tuple(parameters.pop("words", ctx.params.get("words", ())))
    finder = Finder(words, given(parameters), steps)
    found = finder.by_rows(most) if finder.limits.gives_size else finder.by_parts()
    if as_json:
        click.echo(msgspec.json.encode(Output(SCHEMA, finder.tries, **found)))
    else:
        click.echo("\n".join(table(finder.tries)))
        if not any(found.values()):
            click.echo("no batch size survives")
        elif finder.limits.gives_size:
            click.echo(f"the largest batch that survives: {found['rows']} rows")
        elif found["factor"] == 1:
            click.echo("the whole batch survives")
        else:
            click.echo(f"batches survive in {found['factor']} parts")
    sys.exit(0 if any(found.values()) else NONE_SURVIVES)


def table(tries: Sequence[Tried]) -> list[str]:
    """Return the tried sizes as lines: memory, speed and result of each."""
    rows = [("size", "memory", "batches/s", "rows/s", "outcome")]
    for one in sorted(tries, key=lambda one: (one.rows, -one.factor)):
        memory = quantity(one.memory, "bytes") if one.memory else "?"
        rate = f"{one.rate:.3g}" if one.rate else "?"
        rows_a_second = f"{one.rate * one.rows:.3g}" if one.rate and one.rows else ""
        rows.append((_size(one.factor, one.rows), memory, rate, rows_a_second, one.trouble or "survives"))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in rows
    ]


def _size(factor: int, rows: int) -> str:
    return f"{rows} rows" if rows else "the whole batch" if factor == 1 else f"{factor} parts"


class Finder:
    """Tries sizes of one command and keeps the result."""

    def __init__(self, words: tuple[str, ...], flags: Mapping[str, Any], steps: int) -> None:
        """`flags`: settings as given on the command line."""
        from stallguard.launch.request import command_of

        self._words, self._flags, self._steps = words, dict(flags), steps
        self._cwd = Path.cwd()
        loaded = self._load({})
        self.limits = loaded.config.policy
        self.tries: list[Tried] = []
        self._argv = command_of(words, loaded, os.environ, self._cwd).argv

    def _load(self, more: Mapping[str, Any]) -> config.Loaded:
        from stallguard.supervisor.batch_trial import SETTINGS

        return config.load({**self._flags, **SETTINGS, **more}, os.environ, self._cwd)

    def by_rows(self, most: int | None) -> dict[str, int]:
        """Return the most rows that survive, 0 if none do."""
        from stallguard.core.policy import batch_search
        from stallguard.launch import batch_option

        whole = batch_option.given(self._argv, os.environ, self.limits).whole or 1
        search = batch_search.Search(first=whole, most=most or whole * UPWARDS, least=self.limits.min_batch)
        while (rows := batch_search.next_rows(search)) is not None:
            verdict = self._try(1, self._load({"policy.batch": rows}), rows)
            search = batch_search.tried(search, rows, survived=not verdict.trouble)
        return self._keep("rows", search.good)

    def by_parts(self) -> dict[str, int]:
        """Return the fewest parts in which a batch survives, 0 if in none."""
        from stallguard.core.policy import batch_search

        failed, loaded = 0, self._load({})
        least = self.limits.microbatches
        while (factor := batch_search.next_factor(failed, self.limits.max_factor, least)) is not None:
            if not self._try(factor, loaded, 0).trouble:
                return self._keep("factor", factor)
            failed = factor
        return self._keep("factor", 0)

    def _try(self, factor: int, loaded: config.Loaded, rows: int) -> TrialVerdict:
        """Run one trial and print its result.  Raises StallguardError if no other size could do better."""
        from stallguard.launch.request import prepare
        from stallguard.supervisor.batch_trial import BatchTrial
        from stallguard.supervisor.signals import deferred_signals

        size = _size(factor, rows)
        with deferred_signals() as kept:
            request = prepare(self._words, loaded, os.environ, self._cwd, trial=True)
            trial = BatchTrial(request, loaded, os.environ, steps=self._steps, factor=factor)
            trial.guard(kept)
        verdict = trial.verdict()
        if verdict.hopeless:
            why, cure = verdict.trouble, f"its output: {trial.dir.output}"
            raise StallguardError(
                f"the try with {size} does not show its batch size", why=why, cure=cure, code=1
            )
        self.tries.append(
            Tried(
                factor,
                not verdict.trouble,
                rows,
                verdict.trouble,
                verdict.batches,
                verdict.memory,
                verdict.rate,
            )
        )
        outcome = f"fails: {verdict.trouble}" if verdict.trouble else "survives"
        click.echo(f"stallguard: {size}: {outcome} ({verdict.batches} batches, run {trial.dir.id})", err=True)
        return verdict

    def _keep(self, name: str, value: int) -> dict[str, int]:
        from stallguard.launch import batch_option

        if value:
            key = learned_store.key_of(batch_option.unsized(self._argv, self.limits), self._cwd)
            known = msgspec.structs.replace(learned_store.sizes(key, _say), **{name: value})
            learned_store.keep_sizes(key, known, _say)
        return {name: value}


def _say(words: str) -> None:
    click.echo(f"stallguard: {words}", err=True)
