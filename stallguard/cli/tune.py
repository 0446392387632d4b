"""`stallguard tune find-batch` and `learned`: the largest batch that a training survives here, and what was learned.

`Trials` runs one guarded trial after the other, each of the same command, for `compare` too; it must not judge what a
trial showed.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli import completion
from stallguard.cli._console import echo, note, prints_json
from stallguard.cli._errors import INTERRUPTED
from stallguard.cli._options import given, settings
from stallguard.cli.run import RunCommand
from stallguard.cli.verbs import VerbGroup
from stallguard.core.text import counted
from stallguard.core.trials import Trial
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.report.sanitize import one_line
from stallguard.storage import learned_store

if TYPE_CHECKING:
    from stallguard.core.actions import Launch
    from stallguard.core.trials import Trial
    from stallguard.supervisor.trial import TrialRun


class Interrupted(Exception):
    """The user ended the trials."""


class Trials:
    """Runs trials of one command."""

    def __init__(self, words: tuple[str, ...], flags: Mapping[str, Any], steps: int, seconds: float = 0.0) -> None:
        """`flags`: settings as given on the command line; `steps`, `seconds`: as for TrialRun."""
        self.words, self.flags, self._steps, self._seconds = words, dict(flags), steps, seconds
        self.cwd = Path.cwd()

    def load(self, more: Mapping[str, Any], env: Mapping[str, str]) -> config.Loaded:
        """Return the settings of a trial.  Raises StallguardError."""
        from stallguard.supervisor.trial import SETTINGS

        return config.load({**self.flags, **SETTINGS, **more}, env, self.cwd)

    def run(self, launch: Launch, more: Mapping[str, Any], env: Mapping[str, str], kept: list[int]) -> TrialRun:
        """Run one trial to its end.

        `more`: settings, over those of the command line; `kept`: signals that arrived before.  Raises StallguardError
        if it cannot begin, and Interrupted if the user has ended the trials already.
        """
        from stallguard.launch.request import prepare
        from stallguard.supervisor.trial import TrialRun

        if kept:
            raise Interrupted
        loaded = self.load(more, env)
        request = prepare(self.words, loaded, env, self.cwd, trial=True)
        trial = TrialRun(request, loaded, env, steps=self._steps, seconds=self._seconds, launch=launch)
        trial.guard(kept)
        return trial


def report_trial(label: str, trial: Trial, good: str) -> None:
    """Print the outcome of one trial, while others follow."""
    outcome = f"fails: {trial.trouble}" if trial.trouble else good
    notes = "; ".join(filter(None, (counted(trial.batches, "batch", "batches"), trial.note, f"run {trial.run}")))
    note(f"stallguard: {label}: {outcome} ({notes})")


SCHEMA = 1
NONE_SURVIVES = 1  # the exit code
SURVIVES = "survives"
UPWARDS = 16  # times the script's own batch: the largest size tried without --most


class Tried(Trial, frozen=True, omit_defaults=True, kw_only=True):
    """One trial of a size."""

    factor: int
    survived: bool
    size: str = ""  # in words


class FoundBatch(msgspec.Struct, frozen=True):
    """The largest batch that survives: in rows if the script gets the size, else in parts.  0: none survives.

    After Ctrl-C there is neither.
    """

    schema: int
    tries: list[Tried]
    rows: int | msgspec.UnsetType = msgspec.UNSET
    factor: int | msgspec.UnsetType = msgspec.UNSET  # parts of a batch; 1: the whole batch survives


@click.command("find-batch", cls=RunCommand, options_metavar="[OPTIONS] [--] COMMAND...")
@click.option(
    "--steps", type=click.IntRange(1), default=50, show_default=True, help="Batches that a size must survive."
)
@click.option("--most", type=click.IntRange(1), help="Largest number of rows to try.  [16 times the script's batch]")
@prints_json("Print the result as JSON.", "stallguard.cli.tune:FoundBatch")
@settings()
def find_batch(words: tuple[str, ...], steps: int, most: int | None, as_json: bool, **parameters: Any) -> None:
    """Find the largest batch that a training survives here; `run` uses it from then on.

    Each size is tried in a guarded run of its own that ends after some batches. If the size can be
    passed to the script (--batch-flag, --batch-env, or {batch} with --batch), more and fewer rows are tried, by
    bisection; else its batch whole and in 2, 4, 8 ... parts. Exit code 1 if no batch survives.

    \b
    Examples:
      stallguard tune find-batch train.py
      stallguard tune find-batch --batch-flag=--batch-size -- train.py --batch-size 512
    """  # noqa: D301 - click wants the real backspace
    from stallguard.report.trial_table import table
    from stallguard.supervisor.signals import deferred_signals

    finder = Finder(words, given(parameters), steps)
    found: dict[str, int] = {}
    is_interrupted = False
    with deferred_signals() as kept:
        try:
            found = finder.by_rows(most, kept) if finder.limits.gives_size else finder.by_parts(kept)
        except Interrupted:
            is_interrupted = True
    if as_json:
        echo(jsontext.readable(FoundBatch(SCHEMA, finder.tries, **found)))
    else:
        tried = sorted(finder.tries, key=lambda one: (one.rows or 0, -one.factor))
        echo("\n".join(table("size", [(one.size, one) for one in tried], SURVIVES)))
        if is_interrupted:
            echo("interrupted before the largest batch was known")
        elif not any(found.values()):
            echo("no batch size survives")
        elif finder.limits.gives_size:
            echo(_largest(found["rows"], finder.tries, most))
        elif found["factor"] == 1:
            echo("the whole batch survives")
        else:
            echo(f"batches survive in {found['factor']} slices")
    sys.exit(INTERRUPTED if is_interrupted else 0 if any(found.values()) else NONE_SURVIVES)


def _largest(rows: int, tries: Sequence[Tried], most: int | None) -> str:
    """Return what is known of the largest batch: the search ends at a limit, or near the smallest that failed."""
    failed = min((one.rows or 0 for one in tries if not one.survived), default=0)
    if failed:
        return f"the largest batch that was seen to survive: {counted(rows, 'row')}; {counted(failed, 'row')} fail"
    limit = "--most" if most else f"{UPWARDS} times the script's batch; --most sets another limit"
    survive = f"batches of {counted(rows, 'row')} survive, the most that was tried"
    return f"{survive} ({limit}); larger batches were not tried"


class Finder:
    """Tries sizes of one command and keeps the result."""

    def __init__(self, words: tuple[str, ...], flags: Mapping[str, Any], steps: int) -> None:
        """`flags`: settings as given on the command line."""
        from stallguard.launch.request import command_of

        self._trials, self.tries = Trials(words, flags, steps), list[Tried]()
        loaded = self._trials.load({}, os.environ)
        self.limits = loaded.config.policy
        self._argv = command_of(words, loaded, os.environ, self._trials.cwd).argv

    def by_rows(self, most: int | None, kept: list[int]) -> dict[str, int]:
        """Return the most rows that survive, 0 if none do.  `kept`, and what is raised: as for Trials.run."""
        from stallguard.core import trials
        from stallguard.launch import batch_option

        whole = batch_option.given(self._argv, os.environ, self.limits).whole or 1
        search = trials.Search(first=whole, most=most or whole * UPWARDS, least=self.limits.min_batch)
        while (rows := trials.next_rows(search)) is not None:
            survived = self._survives(1, {"policy.batch": rows}, rows, kept)
            search = trials.tried(search, rows, survived=survived)
        return self._keep("rows", search.good)

    def by_parts(self, kept: list[int]) -> dict[str, int]:
        """Return the fewest parts in which a batch survives, 0 if in none.  `kept`: as for Trials.run."""
        from stallguard.core import trials
        from stallguard.core.limits import MOST_SLICES

        failed, least = 0, self.limits.microbatches
        while (slices := trials.next_slices(failed, MOST_SLICES, least)) is not None:
            if self._survives(slices, {}, 0, kept):
                return self._keep("slices", slices)
            failed = slices
        return self._keep("slices", 0)

    def _survives(self, slices: int, flags: Mapping[str, Any], rows: int, kept: list[int]) -> bool:
        """Run one trial and print its result.  Raises StallguardError if no other size could do better."""
        from stallguard.core.actions import Launch

        size = counted(rows, "row") if rows else "the whole batch" if slices == 1 else f"{slices} slices"
        run = self._trials.run(Launch(attempt=1, slices=slices), flags, os.environ, kept)
        verdict, trial = run.verdict(), run.result()
        if run.is_interrupted:
            raise Interrupted
        if verdict.hopeless:
            raise StallguardError(
                f"the try with {size} does not show its batch size",
                why=verdict.trouble,
                cure=f"its output: {run.dir.output}",
                code=1,
            )
        figures = msgspec.structs.asdict(trial) | {"rows": rows or trial.rows}
        self.tries.append(Tried(**figures, factor=slices, survived=not trial.trouble, size=size))
        report_trial(size, trial, SURVIVES)
        return not trial.trouble

    def _keep(self, name: str, value: int) -> dict[str, int]:
        from stallguard.launch import batch_option

        if value:
            key = learned_store.key_of(batch_option.unsized(self._argv, self.limits), self._trials.cwd)
            known = msgspec.structs.replace(learned_store.sizes(key, _say), **{name: value})
            learned_store.keep_sizes(key, known, _say)
        return {"rows" if name == "rows" else "factor": value}  # as --json calls it


def _say(words: str) -> None:
    note(f"stallguard: {words}")


class LearnedScript(msgspec.Struct, frozen=True):
    """What was learned of one script on this machine."""

    name: str  # for `learned forget`
    saved: float  # seconds since the epoch
    what: str  # in words
    command: list[str]
    directory: str


class LearnedScripts(msgspec.Struct, frozen=True):
    """What was learned, the newest last."""

    schema: int
    learned: list[LearnedScript]


@click.group("learned", cls=VerbGroup)
def learned() -> None:
    """Show or delete what was learned of each script by runs and find-batch: its usual gaps, and surviving batches."""


@learned.command("show")
@prints_json("One JSON object.", "stallguard.cli.tune:LearnedScripts")
def show(as_json: bool) -> None:
    """Show what was learned of each script on this machine, the newest last."""
    kept = known_scripts()
    if as_json:
        echo(jsontext.readable(kept))
        return
    for one in kept.learned:
        script = one_line(f"{' '.join(one.command)}  ({one.directory})")
        day = dt.datetime.fromtimestamp(one.saved).astimezone()
        echo(f"{one.name}  {day:%Y-%m-%d}  {one.what:<34}  {script}")
    if not kept.learned:
        note("nothing has been learned yet")


def known_scripts() -> LearnedScripts:
    """Return what was learned of each script on this machine, as `--json` prints it."""
    kept = learned_store.everything()
    rows = [LearnedScript(one.name, one.saved, one.what, list(one.key.command), one.key.directory) for one in kept]
    return LearnedScripts(SCHEMA, rows)


@learned.command("forget")
@click.argument("name", required=False, shell_complete=completion.learned)
@click.option("--all", "everything", is_flag=True, help="Everything of every script.")
def forget(name: str | None, everything: bool) -> None:
    """Delete what was learned under NAME, as `learned show` prints it, or of scripts whose command contains NAME."""
    if name is None and not everything:
        raise click.UsageError("give a NAME, or --all")
    gone = [
        one
        for one in learned_store.everything()
        if everything or (name and (one.name.startswith(name) or name in " ".join(one.key.command)))
    ]
    if not gone and not everything:
        raise StallguardError(
            f"nothing has been learned of {name!r}", cure="stallguard tune learned show lists it", code=NO_SUCH_RUN
        )
    for one in gone:
        one.path.unlink(missing_ok=True)
    note(f"forgot {counted(len(gone), 'file')}")
