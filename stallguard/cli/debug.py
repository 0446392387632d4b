"""The verbs of `stallguard debug`, but `mute`: where a training is now, where its time went, and what becomes of a run.

`dump` shows where a training is, without disturbing it; `profile` where the time went, from the stacks that the probe
sampled; `replay` decides a recorded run again, optionally with other settings; `bundle` packs one file for a bug
report; `prune` removes runs that are too many, too old or too large.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stallguard import config, jsontext
from stallguard.cli import completion
from stallguard.cli._console import console, echo, note, print_blocks, prints_json, writing
from stallguard.cli.live_runs import pick
from stallguard.config.table import TUNING_FILE
from stallguard.core.text import counted, quantity
from stallguard.errors import NO_SUCH_RUN, USAGE, StallguardError
from stallguard.storage import retention, run_files
from stallguard.storage.paths import RunDir, find_run, list_runs, runs_dir

if TYPE_CHECKING:
    from stallguard.collectors import training_process
    from stallguard.report.sampled_stacks import SampledTrainings
    from stallguard.storage.paths import RunDir

STDOUT = "-"
SCHEMA = 1


@click.command("dump")
@click.argument("what", metavar="[RUN|PID]", required=False, shell_complete=completion.living)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Keep the evidence in this directory.")
@click.option(
    "--deep", is_flag=True, help="Also collect what stops the training for seconds: native stacks from a debugger."
)
@click.option("--again", type=float, default=0.0, metavar="SECONDS", help="Dump twice, and compare.")
@prints_json("The manifest, as one JSON object.", "stallguard.collectors.evidence_bundle:Manifest")
def dump(what: str | None, output: Path | None, deep: bool, again: float, as_json: bool) -> None:
    """Show the Python stacks of RUN (default: the newest) or of a guarded process, and keep all evidence.

    Exits with 1 if the process does not write its stacks; the other evidence is kept in any case.
    """
    from stallguard.collectors import evidence_bundle, training_process

    found = _training(what)
    directory = output or found.run.dump()
    context = training_process.context(found, directory)
    manifest = evidence_bundle.gather(dataclasses.replace(context, deep=deep, again=again))
    if as_json:
        echo(jsontext.readable(manifest))
    else:
        stacks = next((item for item in manifest.items if item.name == "stacks"), None)
        if manifest.fingerprint:
            for line in stack_lines((directory / "stacks.txt").read_text(errors="replace"), context.cwd):
                echo(line)
        elif stacks is not None:
            note(f"no Python stacks: {stacks.why}")
        if manifest.where:
            note(f"process {manifest.pid} is at {manifest.where}")
        if manifest.moved is not None:
            note("it went on in between" if manifest.moved else "it did not go on in between")
        note(f"evidence kept in {directory}")
    sys.exit(0 if manifest.fingerprint else 1)


def _training(what: str | None) -> training_process.TrainingProcess:
    from stallguard.collectors import training_process

    by_pid = what is not None and what.isdecimal()
    runs = list(reversed(list_runs())) if by_pid else [pick(what)]
    for run in runs:
        found = training_process.find(run, int(what or 0) if by_pid else 0)
        if found is not None:
            return found
    if by_pid:
        why = "only a guarded process handles the signal for a dump; it would kill any other process"
        raise StallguardError(f"no run guards process {what}", why=why, cure="stallguard ls", code=NO_SUCH_RUN)
    raise StallguardError(
        f"nothing of run {runs[0].id} is alive and has the probe",
        cure=f"its files: {runs[0].path / 'incidents'}",
        code=NO_SUCH_RUN,
    )


def stack_lines(text: str, cwd: str = "") -> Iterator[str]:
    """Yield a dump as lines: the main thread first, the innermost frame on top, `>` marks frames of the script.

    Threads with equal stacks are shown once, and stallguard's own are left out; the file contains all of them.
    """
    from stallguard.report import evidence_files, labels

    for group in evidence_files.fold(text, cwd):
        yield labels.threads(group)
        for segment in group.segments:
            sign = " " if segment.package else ">"
            yield from (f"  {sign} {frame}" for frame in segment.frames)
        yield ""


@click.command("profile")
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option(
    "--speedscope",
    "speedscope_file",
    metavar="FILE",
    shell_complete=completion.files,
    help="Write the stacks in the format of https://www.speedscope.app.  -: standard output.",
)
@prints_json("The profile as one JSON object.", "stallguard.report.sampled_stacks:ProfileDocument")
def profile(run: str | None, speedscope_file: str | None, as_json: bool) -> None:
    """Show where the time of RUN (default: the newest live run, else the newest) went, by phase and by line.

    The probe samples the stacks of a training twice a second.  Works while the training runs, too.  Exits with 1 if the
    run has no samples.  `stallguard report --html` draws the same stacks as a flame graph.

    \b
    Examples:
      stallguard debug profile
      stallguard debug profile --json | jq '.trainings[0].training[0]'
      stallguard debug profile --speedscope stacks.json
    """  # noqa: D301 - click wants the real backspace
    if speedscope_file == STDOUT and as_json:
        raise click.UsageError("--speedscope - writes to standard output, so --json cannot be printed there")
    from stallguard.report import sampled_stacks

    which = pick(run)
    found = sampled_stacks.of_run(which)
    if speedscope_file is not None:
        _export(which, found, speedscope_file, err=as_json)
        if not as_json:
            return
    made = sampled_stacks.make(which, found, os.environ)
    if as_json:
        echo(jsontext.readable(made))
        return
    from stallguard.report import terminal_page

    print_blocks(terminal_page.profile(made), console())


def _export(run: RunDir, found: SampledTrainings, target: str, *, err: bool) -> None:
    """Write the file for speedscope, whole or not at all, and print its path."""
    if all(one.samples is None for one in found.trainings):
        what = f"the files of samples of run {run.id} cannot be read, so it has no stacks"
        cure = "stallguard debug profile shows the last figures in its journal"
        raise StallguardError(what, cure=cure, code=1)
    from stallguard.report import sampled_stacks

    file = sampled_stacks.speedscope_file(run.id, found.trainings)
    text = jsontext.readable(sampled_stacks.cleaned(file, sampled_stacks.redactor_of(run, os.environ)))
    if target == STDOUT:
        echo(text)
        return
    with writing(Path(target), "--speedscope") as out:
        out.write(text)
    echo(Path(target), err=err)


@click.command("replay")
@click.argument("what", metavar="[RUN|JOURNAL]", required=False, shell_complete=completion.runs_and_files)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting, as `config show` names it.",
    shell_complete=completion.assignments,
)
@click.option("--compare", is_flag=True, help="Compare the present settings with those of --set.")
@prints_json("One JSON object.", "stallguard.report.replay:ReplayOutput")
def replay(what: str | None, sets: tuple[str, ...], compare: bool, as_json: bool) -> None:
    """Show when a recorded RUN (default: the newest) or its JOURNAL would have been suspected, dumped and restarted."""
    from stallguard.report import replay

    path = Path(what) if what is not None and Path(what).is_file() else find_run(what).journal
    recording = replay.read(path)
    changed = config.parse_set(sets)
    choices: list[dict[str, str]] = [{}, changed] if compare else [changed]
    asked = run_files.asked(RunDir(path.parent))
    then: dict[str, Any] = {}  # the settings of the recorded run; none beside a copied journal
    if asked is not None:  # with the rows that the run had: the file of its tuning table can be another one by now
        given = [name for name, origin in asked.origins.items() if origin != config.DEFAULT and name != TUNING_FILE]
        then = {name: reduce(dict.__getitem__, name.split("."), asked.config) for name in given}
    found = []
    for choice in choices:
        limits = config.load({**then, **choice}, os.environ, Path.cwd()).config.limits()
        found.append((choice, replay.replay_run(recording.events, limits, orders=recording.orders)))
    if as_json:
        echo(jsontext.readable(replay.output(recording, found, compare=compare)))
        return
    if title := replay.title(recording):
        echo(title)
    for choice, result in found:
        if compare:
            echo("with " + (", ".join(f"{key}={raw}" for key, raw in choice.items()) or "the settings as they are"))
        for line in replay.lines(recording, result):
            echo(f"  {line}" if compare else line)


@click.command("bundle")
@click.argument("run", required=False, shell_complete=completion.runs)
@click.option("-o", "--output", type=click.Path(), help="The file to write, - for standard output.  [RUN.tar.gz]")
@prints_json("The packed files, as one JSON object.", "stallguard.collectors.bundle_archive:PackedBundle")
def bundle(run: str | None, output: str | None, as_json: bool) -> None:
    """Pack RUN (default: the newest) into one file without secrets, to be attached to a bug report."""
    from stallguard.collectors.bundle_archive import PackedBundle, pack
    from stallguard.report.sampled_stacks import redactor_of

    which = find_run(run)
    redactor = redactor_of(which, os.environ)  # this shell's secrets too: the training probably had the same
    if output == "-":
        if sys.stdout.isatty():
            raise StallguardError(
                "a bundle is not text, and is not written to a terminal", cure="choose a file: -o FILE", code=USAGE
            )
        pack(which, redactor, sys.stdout.buffer)
        return
    path = Path(output or f"{which.id}.tar.gz")
    with writing(path, "-o") as file:
        contents = pack(which, redactor, file)
    if as_json:
        echo(jsontext.readable(PackedBundle(contents.schema, str(path), contents)))
        return
    echo(path)
    removed = ", ".join(f"{count} x {rule}" for rule, count in sorted(contents.removed.items()))
    note(f"{counted(len(contents.files), 'file')}; removed: {removed or 'nothing'}; check it before you send it")


class PrunedRun(msgspec.Struct, frozen=True):
    """A run that is removed, or would be."""

    id: str
    bytes: int
    why: str  # a sentence


class PrunedRuns(msgspec.Struct, frozen=True):
    """The removed runs."""

    schema: int
    removed: bool  # false with --dry-run: nothing was removed
    runs: list[PrunedRun]


@click.command("prune")
@click.option("--runs", metavar="COUNT", help="Runs to keep, the newest.  [keep.runs: 50]")
@click.option("--age", metavar="DURATION", help="Remove what is older.  [keep.age: 60d]")
@click.option("--size", metavar="SIZE", help="Room for all runs together.  [keep.size: 5GB]")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed.")
@prints_json("One JSON object.", "stallguard.cli.debug:PrunedRuns")
def prune(runs: str | None, age: str | None, size: str | None, dry_run: bool, as_json: bool) -> None:
    """Remove runs that are too many, too old or too large; never one that is still alive.

    \b
    Examples:
      stallguard debug prune --dry-run
      stallguard debug prune --runs 10 --age 30d
    """  # noqa: D301 - click wants the real backspace
    flags = {"keep.runs": runs, "keep.age": age, "keep.size": size}
    typed = {path: f"--{path.removeprefix('keep.')}" for path in flags}
    settings = config.load(flags, os.environ, Path.cwd(), typed).config.keep
    removals = retention.prune(settings, runs_dir(), dry=dry_run)
    if as_json:
        rows = [PrunedRun(item.run.id, item.size, item.why) for item in removals]
        echo(jsontext.readable(PrunedRuns(SCHEMA, not dry_run, rows)))
        return
    for item in removals:
        echo(f"{item.run.id:<36}  {quantity(item.size, 'bytes'):>8}  {item.why}")
    done = "would be removed" if dry_run else "removed"
    room = quantity(sum(item.size for item in removals), "bytes")
    note(f"{counted(len(removals), 'run')} {done}, {room}")
