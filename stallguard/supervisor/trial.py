"""One trial of `find-batch` or `compare`: a guarded run that ends after some batches, and what it showed.

The figures are made from all that the probe and the sensors report during the trial: what the core gets is summed up
(loop.py), and too coarse for a stretch of some seconds.

Must not choose a setting: core.trials and core.trials do.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stallguard.config import CurrentSettings, Loaded
from stallguard.core import trials
from stallguard.core.actions import Launch
from stallguard.core.diagnosis.causes import CAUSES, UNKNOWN
from stallguard.core.diagnosis.clues.machine import PSI_FULL
from stallguard.core.events import Event, Heartbeat, Sampled, UserCommand
from stallguard.core.readings import Device, Machine, Memory, Process
from stallguard.core.run import Run, beats
from stallguard.core.text import count
from stallguard.core.trials import CROWDED, Trial
from stallguard.core.user_commands import STOP_VERBS
from stallguard.launch.request import Request
from stallguard.supervisor.launcher import RunOptions
from stallguard.supervisor.session import Session

# What a trial is run with, over the user's own settings: it ends at the first trouble, and leaves nothing behind.
SETTINGS = {
    "policy.max_restarts": 0,
    "policy.on_stall": "stop",
    "checkpoint.enabled": False,
    "run.resume": "no",
    "output.quiet": True,
    "notify.on": (),
    "notify.desktop": False,
}
UNCUT = "its batches cannot be cut from outside: name the option that takes its batch size, with --batch-flag"
MIXED = "validation or checkpoints are part of this pace"
LEVELS = ("normal", "warn", "critical")
ENOUGH = 5  # batches that make a pace
# Seconds between two readings: of the GPU's power, which is summed up, and of what other programs take.
PERIODS = {"device": 2.0, "machine": 5.0}
READINGS = 3600  # of each sensor; of a longer trial, the newest


class TrialVerdict(NamedTuple):
    """How a trial ended.  `trouble`: in words, "" if it survived; `hopeless`: no other size can help."""

    batches: int
    trouble: str = ""
    hopeless: bool = False


class Observations:
    """What is reported during a trial, from any thread."""

    def __init__(self, cpus: int) -> None:
        """Begin empty.  `cpus`: processor cores of the machine."""
        self._cpus = cpus
        self.beats: dict[int, trials.BeatTimes] = {}  # by process
        self._process = deque[tuple[float, Process]](maxlen=READINGS)
        self._device = deque[tuple[float, Device]](maxlen=READINGS)
        self._machine = deque[tuple[float, Machine]](maxlen=READINGS)
        self.orders = 0  # to end the training

    def take(self, event: Event) -> None:
        """Keep what the figures are made of."""
        if isinstance(event, Heartbeat):
            self.beats.setdefault(event.pid, trials.BeatTimes()).take(event)
        elif isinstance(event, Sampled) and isinstance(event.reading, Process):
            self._process.append((event.at, event.reading))
        elif isinstance(event, Sampled) and isinstance(event.reading, Device):
            self._device.append((event.at, event.reading))
        elif isinstance(event, Sampled) and isinstance(event.reading, Machine):
            self._machine.append((event.at, event.reading))
        elif isinstance(event, UserCommand) and event.verb in STOP_VERBS:
            self.orders += 1

    def pace(self) -> tuple[int, trials.Pace] | None:
        """Return the process that trained most, and its pace; None if none trained."""
        paces = {pid: found for pid, one in list(self.beats.items()) if (found := trials.pace(one.intervals))}
        return max(paces.items(), key=lambda item: item[1].batches, default=None)

    def figures(self) -> Trial:
        """Return the figures of the trial so far; those of a level or rate are about the stretch of its pace."""
        process, device = list(self._process), list(self._device)
        sizes = [reading.footprint or reading.rss or 0 for _, reading in process]
        trial = Trial(memory=max(sizes, default=0) or None, used_gpu=used_gpu([one for _, one in device]))
        found = self.pace()
        if found is None:
            return trial
        pid, stretch = found
        begin = stretch.begin
        end = stretch.end + PERIODS["device"]  # a reading is of the seconds before it
        # A reading of pid 0 is of the whole run, as long as no training is known: its counters are others.
        cpu = [(at, one.cpu) for at, one in process if one.pid == pid and one.cpu is not None]
        queue = [(at, one.run_queue) for at, one in process if one.pid == pid and one.run_queue is not None]
        seen = [(at, one) for at, one in device if one.pid in (0, pid)]
        levels = [(at, one.utilisation) for at, one in seen if one.utilisation is not None]
        power = [(at, one.power) for at, one in seen if one.power is not None]
        watts = trials.mean_over(power, begin, end)
        cores = trials.rate_over(cpu, begin, stretch.end)
        shares = [(at, one.idle) for at, one in list(self._machine) if one.idle is not None]
        idle = trials.mean_over(shares, begin, stretch.end + PERIODS["machine"])
        others = None
        if idle is not None and cores is not None:
            others = max(0.0, 1.0 - idle - cores / self._cpus)
        waited = trials.rate_over(queue, begin, stretch.end)
        trial = replace(trial, others=others, waited=None if waited is None else max(0.0, waited))
        is_crowded = trial.contention >= CROWDED
        crowded = f"other programs took {others:.0%} of the processor" if is_crowded else ""
        return replace(
            trial, measured=stretch.batches, seconds=stretch.seconds, rate=stretch.rate, spread=stretch.spread,
            note="; ".join(filter(None, (MIXED if stretch.is_mixed else "", crowded))), cores=cores,
            gpu=trials.mean_over(levels, begin, end),
            gpu_memory=max((one.memory for _, one in seen if one.memory), default=None), watts=watts,
            joules=watts / stretch.rate if watts is not None else None,
        )  # fmt: skip


class TrialRun:
    """A run that is stopped after `steps` batches, or at the first trouble."""

    def __init__(
        self, request: Request, loaded: Loaded, env: Mapping[str, str], *, steps: int, seconds: float = 0.0,
        launch: Launch,
    ) -> None:  # fmt: skip
        """As Session.  `steps` batches have to be trained and, if `seconds` is given, measured over that time.

        `launch`: its only attempt.
        """
        self.dir, self._steps, self._seconds = request.run, steps, seconds
        self._observed = Observations(os.cpu_count() or 1)
        self._is_stopped = self._is_complete = False
        options = RunOptions(
            announce=False,  # the command itself reports its trials
            output_to_file=True,
            trial=launch,
            observe=self._observed.take,
            sensor_periods=PERIODS,
            stop_when=self._is_over,
        )
        self._session = Session(request, CurrentSettings(loaded), env, options)

    def _is_over(self, run: Run) -> bool:
        self._is_complete = beats(run) >= self._steps
        if self._is_complete and self._seconds:
            found = self._observed.pace()
            self._is_complete = (
                found is not None and found[1].batches >= self._steps and found[1].seconds >= self._seconds
            )
        self._is_stopped = self._is_complete or bool(run.totals.incidents)
        return self._is_stopped

    def guard(self, kept: list[int]) -> int:
        """Run it to its end; as Session.guard."""
        return self._session.guard(kept)

    @property
    def is_interrupted(self) -> bool:
        """Whether the user ended it, by Ctrl-C, `stallguard stop` or a signal."""
        return self._observed.orders > self._is_stopped

    @property
    def libraries(self) -> tuple[str, ...]:
        """The training libraries that the probe found; after `guard`."""
        run = self._session.context.current.run
        return tuple(run.history.greeted.versions) if run and run.history.greeted else ()

    def verdict(self) -> TrialVerdict:
        """Return how it ended; after `guard`."""
        run = self._session.context.current.run
        if run is None:
            return TrialVerdict(0, "it never began", hopeless=True)
        return judged(run, is_complete=self._is_complete or (not self._seconds and beats(run) >= self._steps))

    def result(self) -> Trial:
        """Return what it showed; after `guard`."""
        verdict, run = self.verdict(), self._session.context.current.run
        trial = self._observed.figures()
        trouble, notes = verdict.trouble, [trial.note]
        if self._seconds and not trouble and trial.measured < min(self._steps, ENOUGH):
            trouble = f"it ended after {count(verdict.batches, 'batch', 'batches')}: too few to measure"
        elif self._seconds and not trouble and not self._is_complete:
            notes.append(f"it ended after {count(verdict.batches, 'batch', 'batches')}")
        return replace(
            trial, trouble=trouble, note="; ".join(filter(None, notes)), batches=verdict.batches,
            rows=run.history.rows if run else None, run=self.dir.id,
        )  # fmt: skip


def used_gpu(readings: Sequence[Device]) -> bool | None:
    """Return whether the training computed on the GPU; None if that is not known."""
    if any(reading.used_by_run and reading.moved for reading in readings):
        return True
    known = [reading.used_by_run for reading in readings if reading.used_by_run is not None]
    return False if known and not any(known) else None


def judged(run: Run, *, is_complete: bool) -> TrialVerdict:
    """Return whether a trial survived, from the run at its end.  `is_complete`: all its batches were trained."""
    done = beats(run)
    if run.current.interrupts and not (is_complete or run.totals.incidents):
        return TrialVerdict(done, "it was interrupted", hopeless=True)
    if run.whole:
        return TrialVerdict(done, run.whole, hopeless=True)
    heartbeat = run.history.heartbeat
    if done and run.current.slices > 1 and heartbeat is not None and heartbeat.slices == 1:
        return TrialVerdict(done, UNCUT, hopeless=True)
    if run.totals.incidents:
        return TrialVerdict(done, "it stalled")
    if not is_complete and run.code != 0:
        cause = CAUSES[run.current.findings[0].cause if run.current.findings else UNKNOWN]
        return TrialVerdict(done, f"it ended: {cause.title}", hopeless=cause.any_batch_size)
    readings = [seen.reading for seen in run.history.memory if seen.at >= run.current.launched]
    if done and pressed(readings):
        return TrialVerdict(done, "the machine came under memory pressure")
    return TrialVerdict(done) if done else TrialVerdict(0, "no batch was seen", hopeless=True)


def pressed(readings: Sequence[Memory]) -> bool:
    """Return whether memory became tight, compared with how it was at first."""
    if not readings:
        return False
    first = readings[0]
    return any(_level(reading) > _level(first) for reading in readings) or (
        (first.stall_full or 0.0) < PSI_FULL <= max(reading.stall_full or 0.0 for reading in readings)
    )


def _level(reading: Memory) -> int:
    return LEVELS.index(reading.pressure) if reading.pressure in LEVELS else 0
