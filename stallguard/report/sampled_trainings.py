"""The trainings of a run with the stacks that their probes sampled: each file of samples, and whose it is.

A file of samples is named by its process (storage.stack_samples); the journal says of which attempt and which training
that process was.  If a file is damaged or was left out of a copy of the run, the newest profile in the journal says as
much as it can: the table, but no stacks.  Must not lay anything out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import msgspec

from stallguard.collectors import stack_profile
from stallguard.core.events import Exited, Launched, ProbeConnected, ProcessLeft, Profiled
from stallguard.core.profile import Profile
from stallguard.core.text import counted, duration
from stallguard.errors import StallguardError
from stallguard.report import programs
from stallguard.report.journal_record import Record
from stallguard.report.programs import Program
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
    each = programs.programs(known) if started is None else started
    commands = {(one.attempt, one.pid): one.command for one in each}
    attempts = {
        what.pid: what.attempt
        for _, what in known.happened
        if isinstance(what, Launched | ProbeConnected | Profiled)
    }
    profiles = {
        (what.attempt, what.pid): what.profile for _, what in known.happened if isinstance(what, Profiled)
    }
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
    found = []
    for pid, samples in files.items():
        attempt = attempts.get(pid, 0)
        profiles.pop((attempt, pid), None)
        profile = stack_profile.summarise(samples)
        present = _present(known, attempt, pid, samples.began / 1e9)
        found.append(
            SampledTraining(attempt, pid, commands.get((attempt, pid), ""), present, profile, samples)
        )
    for (attempt, pid), profile in profiles.items():
        present = _present(known, attempt, pid)
        found.append(SampledTraining(attempt, pid, commands.get((attempt, pid), ""), present, profile, None))
    order = {key: place for place, key in enumerate(commands)}
    found.sort(key=lambda one: (one.attempt, order.get((one.attempt, one.pid), len(order)), one.pid))
    return SampledTrainings(found, damaged)


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
    return (
        f"{words}, {share} of the {duration(one.present)} of the process; sampling begins with the training"
    )


def none_of(run: RunDir, known: Record, found: SampledTrainings) -> StallguardError:
    """Return why nothing was sampled in a run (exit code 1)."""
    asked = run_files.asked(run)
    trained = [one for one in programs.programs(known) if one.trains]
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
