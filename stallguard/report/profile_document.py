"""Where the time of a run went, as one value: what `stallguard debug profile` shows, without secrets.

The figures are those of collectors.stack_profile; here they get their shares, their trainings and their places.  Also
the flame graphs of the report, which are of the same samples.  Must not lay anything out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stallguard.collectors.redact import Redactor
from stallguard.core.profile import FEEDER, TRAINING, Spot
from stallguard.report import flame_graph, flame_tree, sampled_trainings
from stallguard.report.flame_graph import FlameGraph, FlameGraphs
from stallguard.report.sampled_trainings import SampledTraining, SampledTrainings
from stallguard.report.sanitize import plain
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

SCHEMA = 1
BARS = 1500  # of all graphs of a page
# Trainings whose graphs are drawn, those with the most time: each graph must have room for a stack of ROWS calls.
DRAWN = BARS // (4 * flame_graph.ROWS)

T = TypeVar("T")


class PhaseTime(msgspec.Struct, frozen=True):
    """The time of the training's own thread in a phase."""

    phase: str  # of the training; "importing": it has no phases that are known
    seconds: float  # in it
    share: float  # of the sampled time, 0 to 1


class LineTime(msgspec.Struct, frozen=True):
    """The time in a line of the script's own code, with all that it calls."""

    phase: str  # of the training at that time
    seconds: float  # in it
    share: float  # of the sampled time, 0 to 1; threads run side by side, so a sum can be more than 1
    where: str  # the line as a user reads it; empty: the stack had no line of the script
    file: str  # of the line
    line: int  # its number; 0: not known
    function: str  # in which it is
    calls: str  # the library's function that the line calls; empty: none
    called_by: str  # the library's function that calls this code; empty: none
    does: str  # what the stack does: user, tf_wait, lock, generator, iterator, ...; empty: not known
    feeds: bool  # a library calls this code to get data: a generator, a mapped function, a PyDataset


class MeasuredFunction(msgspec.Struct, frozen=True):
    """A function of the script that the library calls inside its graphs; each call of it was measured, not sampled."""

    purpose: str  # input, or step
    seconds: float  # of all its calls, in all threads
    share: float  # of the sampled time; calls run side by side, so it can be more than 1
    calls: int  # how often it was called
    where: str  # its most expensive line as a user reads it


class TrainingProfile(msgspec.Struct, frozen=True):
    """Where the time of one process went, the most expensive first."""

    title: str  # which attempt and process it is; empty: there is only one
    attempt: int  # 0: not known
    pid: int
    command: str  # what the process runs
    coverage: str  # how much of the process the samples cover, as a sentence
    samples: int  # how many
    seconds: float  # that they cover: the sampled time
    present_seconds: float  # in which the process was there; 0: not known
    from_journal: bool  # its file of samples is not readable: these are the newest figures of the journal
    phases: list[PhaseTime]  # of the thread that trains
    training: list[LineTime]  # lines in the thread that trains
    feeders: list[LineTime]  # lines in all other threads that run the script's code
    functions: list[MeasuredFunction]  # inside the library's graphs, which samples hardly show
    rest: float  # seconds of all lines that are not named


class ProfileDocument(msgspec.Struct, frozen=True):
    """Where the time of a run went, by training."""

    schema: int
    run: str
    state: str  # running, finished, stopped, interrupted, gave up, failed or lost
    command: list[str]
    trainings: list[TrainingProfile]  # each process that trained, in the order in which they began
    notes: list[str]  # what is missing, and why
    removed: dict[str, int]


def make(run: RunDir, found: SampledTrainings, environment: Mapping[str, str]) -> ProfileDocument:
    """Return where the time of a run went.  `environment`: whose secrets are removed too."""
    asked = run_files.asked(run)
    notes = [f"the samples of process {pid} are damaged" for pid in found.damaged]
    named = sampled_trainings.titles(found.trainings)
    whole = ProfileDocument(
        schema=SCHEMA,
        run=run.id,
        state=run_files.state(run),
        command=asked.command if asked else [],
        trainings=[_training(one, title) for one, title in zip(found.trainings, named, strict=True)],
        notes=notes,
        removed={},
    )
    redactor = redactor_of(run, environment)
    clean = cleaned(whole, redactor)
    return msgspec.structs.replace(clean, removed={rule: n for rule, n in redactor.removed.items() if n})


def redactor_of(run: RunDir, environment: Mapping[str, str]) -> Redactor:
    """Return what removes the secrets from texts of a run."""
    asked = run_files.asked(run)
    return Redactor(environment, asked.argv if asked else (), str(Path.home()))


def cleaned(value: T, redactor: Redactor) -> T:
    """Return a value without its secrets, every character visible."""
    return msgspec.convert(_visible(redactor.value(msgspec.to_builtins(value))), type(value))


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(key): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, list) else value


def _training(one: SampledTraining, title: str) -> TrainingProfile:
    whole = one.profile.seconds or 1.0
    phases = sorted(one.profile.phases.items(), key=lambda item: (-item[1], item[0]))
    return TrainingProfile(
        title=title,
        attempt=one.attempt,
        pid=one.pid,
        command=one.command,
        coverage=sampled_trainings.coverage(one),
        samples=one.profile.samples,
        seconds=one.profile.seconds,
        present_seconds=one.present,
        from_journal=one.samples is None,
        phases=[PhaseTime(phase, seconds, seconds / whole) for phase, seconds in phases],
        training=[_line(spot, whole) for spot in one.profile.spots if spot.role == TRAINING],
        feeders=[_line(spot, whole) for spot in one.profile.spots if spot.role == FEEDER],
        functions=[
            MeasuredFunction(each.purpose, each.seconds, each.seconds / whole, each.calls, each.where)
            for each in one.profile.functions
        ],
        rest=one.profile.rest,
    )


def _line(spot: Spot, whole: float) -> LineTime:
    return LineTime(
        spot.phase, spot.seconds, spot.seconds / whole, spot.where, spot.file, spot.line, spot.function, spot.calls,
        spot.called_by, spot.does, spot.feeds,
    )  # fmt: skip


def flames(found: SampledTrainings, cwd: str) -> FlameGraphs:
    """Return the flame graphs of a run, secrets and all: BARS bars at most.  `cwd`: the directory of the run."""
    titled = zip(found.trainings, sampled_trainings.titles(found.trainings), strict=True)
    sampled = [(one.samples, title) for one, title in titled if one.samples is not None]
    most_time = sorted(range(len(sampled)), key=lambda place: -sampled[place][0].milliseconds)[:DRAWN]
    drawn = [sampled[place] for place in sorted(most_time)]
    trees = [
        (tree, title) for samples, title in drawn for role in (TRAINING, FEEDER)
        if (tree := flame_tree.build(samples, role, cwd)) is not None
    ]  # fmt: skip
    graphs: list[FlameGraph] = []
    for tree, title in trees:
        name = ": ".join(filter(None, (title, tree.call.name)))
        graphs.append(flame_graph.layout(tree, name, BARS // len(trees)))
    return FlameGraphs(graphs, len(sampled) - len(drawn))
