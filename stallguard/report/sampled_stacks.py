"""Where the time of a run went, from the stacks that its probes sampled: as figures, as flame graphs, as a file.

A file of samples is named by its process (storage.stack_samples); the journal says of which attempt and which training
that process was.  If a file is damaged or was left out of a copy of the run, the newest profile in the journal says as
much as it can: the table, but no stacks.

The figures of `stallguard debug profile` are those of collectors.stack_profile; here they get their shares, their
trainings and their places, without secrets.

The exported file has speedscope's public format, which https://www.speedscope.app/file-format-schema.json defines (made
from src/lib/file-format-spec.ts of https://github.com/jlfwong/speedscope).  It has frames that all profiles share, and
profiles of the type "sampled": stacks of frame numbers, the outermost first, with a weight each.  There is one profile
for each training and role of its threads.  The outermost frame is the phase of the training; the others are those of
the samples, not folded, because speedscope folds and searches by itself.  The samples are sums without an order in
time, so its view "Left Heavy" is the one to look at.

This module must not lay anything out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stallguard import __version__
from stallguard.collectors import stack_profile
from stallguard.collectors.redact import Redactor
from stallguard.core.events import Exited, Launched, ProbeConnected, ProcessLeft, Profiled
from stallguard.core.profile import FEEDER, TRAINING, Profile, Spot
from stallguard.core.text import counted, duration
from stallguard.errors import StallguardError
from stallguard.report import attempt_rows, flame_graph, journal_record
from stallguard.report.attempt_rows import Program
from stallguard.report.flame_graph import FlameGraph, FlameGraphs
from stallguard.report.journal_record import Record
from stallguard.report.sanitize import plain
from stallguard.storage import run_files, stack_samples
from stallguard.storage.paths import RunDir
from stallguard.storage.stack_samples import StackSamples

NO = 1  # exit code: the question has no answer
FIRST = 5.0  # seconds until the probe writes its first samples (probe/stack_sampler.py, WRITTEN)
TRIES, PAUSE = 3, 0.01  # reads of a file, and seconds between them: a write of it takes a millisecond


class SampledTraining(msgspec.Struct, frozen=True):
    """A process that trained.

    `attempt`: 0 if the journal does not know it; `present`: seconds in which the process was there, 0 if they are not
    known; `samples`: None if the file is damaged or not there; `profile` is then the journal's, which can be some
    minutes older.
    """

    attempt: int
    pid: int
    command: str
    present: float
    profile: Profile
    samples: StackSamples | None


class SampledTrainings(msgspec.Struct, frozen=True):
    """The trainings in the order in which they began.  `damaged`: processes whose file cannot be read."""

    trainings: list[SampledTraining] = []
    damaged: list[int] = []


def read(run: RunDir, known: Record, started: Sequence[Program] | None = None) -> SampledTrainings:
    """Return what was sampled in a run.  `known`: its journal; `started`: the programs in it, if they are known."""
    each = attempt_rows.programs(known) if started is None else started
    commands = {(one.attempt, one.pid): one.command for one in each}
    attempts = {
        what.pid: what.attempt for _, what in known.happened if isinstance(what, Launched | ProbeConnected | Profiled)
    }
    profiles = {(what.attempt, what.pid): what.profile for _, what in known.happened if isinstance(what, Profiled)}
    files: dict[int, StackSamples] = {}
    damaged = []
    for file in sorted(run.probe.glob("*.profile")):
        with contextlib.suppress(OSError, ValueError):  # ValueError: the name is no number
            pid, samples = int(file.stem), None
            for _ in range(TRIES):
                samples = stack_samples.read(file)
                if samples is not None or not stack_samples.is_begun(file):
                    break
                time.sleep(PAUSE)  # it is being written, or damaged
            else:
                damaged.append(pid)
            if samples is not None:
                files[pid] = samples
    kept = {(attempts.get(pid, 0), pid): samples for pid, samples in files.items()}
    found = []
    for key in {**profiles, **kept}:
        one = kept.get(key)
        present = _present(known, *key, None if one is None else one.began / 1e9)
        profile = profiles[key] if one is None else stack_profile.summarise(one)
        found.append(SampledTraining(*key, commands.get(key, ""), present, profile, one))
    order = {key: place for place, key in enumerate(commands)}
    found.sort(key=lambda one: (one.attempt, order.get((one.attempt, one.pid), len(order)), one.pid))
    return SampledTrainings(found, damaged)


def of_run(run: RunDir) -> SampledTrainings:
    """Return the samples of a run.  Raises StallguardError if it has none."""
    known = journal_record.read(run.journal)
    found = read(run, known)
    if not found.trainings:
        raise none_of(run, known, found)
    return found


def _present(known: Record, attempt: int, pid: int, began: float | None = None) -> float:
    """Return the seconds from the begin of a process to its end, or to its newest record if it has not ended.

    `began`: on the monotonic clock, which is also that of events; by default the first record of its probe.
    """
    seen = [one.at for _, one in known.heartbeat if (one.attempt, one.pid) == (attempt, pid)]
    if not seen:
        return 0.0
    since = seen[0] if began is None else began
    ends = (
        what.at for _, what in known.happened
        if isinstance(what, ProcessLeft | Exited) and what.attempt == attempt and what.at >= since
        and (isinstance(what, Exited) or what.pid == pid)
    )  # fmt: skip
    return next(ends, seen[-1]) - since


def titles(trainings: Sequence[SampledTraining]) -> list[str]:
    """Return a name for each training by its attempt and process; an empty text if there is only one."""
    if len(trainings) == 1:
        return [""]
    several = len({one.pid for one in trainings}) > len({one.attempt for one in trainings})
    found = []
    for one in trainings:
        process = ", ".join(filter(None, (one.command, f"process {one.pid}")))
        attempt = f"attempt {one.attempt}" if one.attempt else ""
        found.append(", ".join(filter(None, (attempt, process if several or not attempt else ""))))
    return found


def coverage(one: SampledTraining) -> str:
    """Return how much of a training its samples cover."""
    number = counted(one.profile.samples, "sample")
    words = f"{number} {'covers' if one.profile.samples == 1 else 'cover'} {duration(one.profile.seconds)}"
    if not one.present or one.present < one.profile.seconds:  # known to the last line of the journal at most
        return words
    share = f"{one.profile.seconds / one.present * 100:.0f} %"
    return f"{words}, {share} of the {duration(one.present)} of the process; sampling begins with the training"


def none_of(run: RunDir, known: Record, found: SampledTrainings) -> StallguardError:
    """Return why nothing was sampled in a run (exit code 1)."""
    asked = run_files.asked(run)
    trained = [one for one in attempt_rows.programs(known) if one.trains]
    what, cure = f"run {run.id} has no samples of its stacks", f"stallguard report {run.id}"
    longest = max((one.last - (one.counts.first_beat or one.last) for one in trained), default=0.0)
    if found.damaged:
        files = ", ".join(str(stack_samples.path(run.probe, pid)) for pid in found.damaged)
        why = f"damaged: {files}"
    elif asked is not None and asked.outside:
        why = f"it was observed from outside only: {asked.outside}"
    elif run_files.state(run) == "running" and longest < 2 * FIRST:
        why, cure = "the first ones come some seconds after the first batch", "ask again then"
    elif not any(isinstance(what, ProbeConnected) for _, what in known.happened):
        why = "no program of it had a probe, so it was observed from outside only"
    elif not trained:
        why = "no process of it trained a batch"
    elif longest <= FIRST + 1:
        first = f"the probe writes the first samples after {duration(FIRST)}"
        why = f"its training lasted {duration(longest)}; {first}"
    else:
        why = "a version of stallguard without samples started it, or its probe could not write them"
    return StallguardError(what, why=why, cure=cure, code=NO)


SCHEMA = 1
BARS = 1500  # of all graphs of a page
# Trainings whose graphs are drawn, those with the most time: each graph must have room for a stack of ROWS calls.
DRAWN = BARS // (4 * flame_graph.ROWS)

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


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
    named = titles(found.trainings)
    whole = ProfileDocument(
        schema=SCHEMA,
        run=run.id,
        state=run_files.state(run),
        command=asked.command if asked else [],
        trainings=[_training(one, title) for one, title in zip(found.trainings, named, strict=True)],
        notes=notes,
        removed={},
    )
    return without_secrets(whole, run, environment)


def without_secrets(whole: S, run: RunDir, environment: Mapping[str, str]) -> S:
    """Return a document of a run without secrets, and with the number of those that are `removed`."""
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
        coverage=coverage(one),
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
    titled = zip(found.trainings, titles(found.trainings), strict=True)
    sampled = [(one.samples, title) for one, title in titled if one.samples is not None]
    most_time = sorted(range(len(sampled)), key=lambda place: -sampled[place][0].milliseconds)[:DRAWN]
    drawn = [sampled[place] for place in sorted(most_time)]
    trees = [
        (tree, title) for samples, title in drawn for role in (TRAINING, FEEDER)
        if (tree := flame_graph.build(samples, role, cwd)) is not None
    ]  # fmt: skip
    graphs: list[FlameGraph] = []
    for tree, title in trees:
        name = ": ".join(filter(None, (title, tree.call.name)))
        graphs.append(flame_graph.layout(tree, name, BARS // len(trees)))
    return FlameGraphs(graphs, len(sampled) - len(drawn))


FORMAT = "https://www.speedscope.app/file-format-schema.json"
SharedFrame = tuple[str] | tuple[str, str, int]  # a phase of the training, or a line of code


def speedscope_file(name: str, trainings: Sequence[SampledTraining]) -> dict[str, Any]:
    """Return the samples of these trainings, secrets and all; trainings without stacks are left out."""
    frames: dict[SharedFrame, int] = {}
    profiles = []
    for one, title in zip(trainings, titles(trainings), strict=True):
        if one.samples is None:
            continue
        for role in (TRAINING, FEEDER):
            words = ": ".join(filter(None, (title, flame_graph.role_name(role))))
            profiles += _profile(one.samples, role, words, frames)
    shared = [dict(zip(("name", "file", "line"), frame, strict=False)) for frame in frames]
    return {
        "$schema": FORMAT, "shared": {"frames": shared}, "profiles": profiles, "name": name,
        "exporter": f"stallguard@{__version__}", "activeProfileIndex": 0,
    }  # fmt: skip


def _profile(samples: StackSamples, role: str, name: str, frames: dict[SharedFrame, int]) -> list[dict[str, Any]]:
    """Return the profile of a role, those with the most time first, or none; add its frames to `frames`."""
    stacks = sorted(
        (one for one in samples.stacks if one.role == role and one.milliseconds > 0),
        key=lambda one: (-one.milliseconds, one.phase, one.stack),
    )
    if not stacks:
        return []
    found = []
    for one in stacks:
        lines = [samples.lines[number] for number in one.stack]
        path: list[SharedFrame] = [(f"phase: {flame_graph.phase_name(one.phase)}",)]
        path += [(line.function, line.file, line.line) for line in lines]
        path += [] if lines else [("stacks with little time",)]
        found.append([frames.setdefault(frame, len(frames)) for frame in path])
    weights = [one.milliseconds for one in stacks]
    return [{
        "type": "sampled", "name": name, "unit": "milliseconds", "startValue": 0, "endValue": sum(weights),
        "samples": found, "weights": weights,
    }]  # fmt: skip
