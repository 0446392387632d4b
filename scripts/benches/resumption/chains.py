"""Trainings that are killed again and again until they end, each a real `stallguard run`: what every restart proves.

The claim: an attempt goes on no later than one batch after the last that any attempt trained, trains the following ones
each once and in their order, and the run ends with the results of the undisturbed training, bit for bit.  Batches
that a process trained after its last checkpoint are trained again: that is the loss that a kill costs.

Kills come from outside, by SIGKILL: before a process has trained its first batch, at a random instant of its training,
or as soon as the record in its page says that it saves.  What that record says afterwards is where the kill met it.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from exactness import verdicts
from exactness.cells import QUIETLY
from exactness.runs import Attempt, Batch, Cell, Ran
from exactness.shape import Shape
from exactness.statements import all_in
from stallguard.probe import wire

SCRIPTS = (
    "arrays_callbacks", "pipeline_global", "sequence_reorders", "generator_endless", "model_unbuilt", "model_gan",
    "callback_containers", "model_finetune", "loop_folds", "loop_shell",
)  # fmt: skip
FOR_EVER = ("--max-restarts", "100000", "--set", "policy.no_progress_limit=100000")
SAVING, EARLY = 0.35, 0.15  # of the kills wait for a save; come before a process' first batch
SLOWLY = {"pause": "0.01"}  # seconds a batch: there has to be a training to be killed between two saves
LOOK, LONG = 0.001, 60.0  # seconds between two looks at a page or file; that something is waited for
LONGEST = 1800.0  # seconds of a run with all its attempts
CHECKPOINT = wire.PHASES.index("checkpoint")


@dataclass
class Kills:
    """What the kills of one script showed."""

    kills: int = 0
    early: int = 0  # before the first batch of their process: imports, building, restoring, passing over
    in_save: int = 0
    inside: list[bool] = field(default_factory=list)  # whether a fit went on inside an epoch
    again: list[int] = field(default_factory=list)  # batches of a fit that were trained again
    left_out: int = 0  # fits that went on later than after the last batch that any attempt trained
    disorder: int = 0  # fits of an attempt whose batches were not one after the other
    said: int = 0  # trainings that ended otherwise than the plain one, which was said before
    wrong: int = 0  # those of which nothing was said, and those that crashed
    trainings: int = 0
    troubles: list[str] = field(default_factory=list)


class Run:
    """A run that goes on, seen from outside."""

    def __init__(self, cell: Cell, child: subprocess.Popen[bytes]) -> None:
        """`child`: the stallguard."""
        self._child = child
        self._seen: set[int] = set()
        self._processes = cell.folder / "harness" / "processes"
        self._results = cell.folder / "harness" / "results.jsonl"
        self._pages = cell.folder / "home" / "runs" / "latest" / "probe"

    def next_process(self) -> psutil.Process | None:
        """Wait for the next training process; None if the run is over."""
        while self._child.poll() is None:
            for pid in map(int, self._processes.read_text().split() if self._processes.exists() else ()):
                if pid not in self._seen:
                    self._seen.add(pid)
                    if psutil.pid_exists(pid):
                        return psutil.Process(pid)
            time.sleep(0.02)
        return None

    def written(self) -> int:
        """Return how many bytes the harness has written."""
        return self._results.stat().st_size if self._results.exists() else 0

    def trains(self, since: int) -> bool:
        """Return whether a batch was trained since the harness had written so many bytes."""
        if self.written() <= since:
            return False
        with self._results.open("rb") as file:
            file.seek(since)
            return b'"batch"' in file.read()

    def saves(self, pid: int) -> bool:
        """Return whether the record of a process says that it makes a checkpoint."""
        try:
            record = wire.unpack((self._pages / f"{pid}.page").read_bytes())
        except OSError:
            return False
        return record is not None and record["phase"] == CHECKPOINT


class Chains:
    """The trainings of one script."""

    def __init__(self, shape: Shape, dice: random.Random, folder: Path) -> None:
        """Run it plainly and undisturbed; `folder`: for all that its runs write."""
        self.seen = Kills()
        self._shape, self._dice, self._folder = shape, dice, folder
        self._plain = Cell(shape, folder / "plain").plain()
        self._places = {batch[:4]: index for index, batch in enumerate(self._plain.last.batches)}
        began = time.monotonic()
        made = Cell(shape, folder / "undisturbed").guarded(_options(0.0), SLOWLY)
        self._judge(made)
        own = [batch for batch in made.last.batches if batch.role == made.last.batches[0].role]
        self._start = own[0].time - began if own else 0.0  # seconds to a process' first batch
        self._training = own[-1].time - own[0].time if own else 0.0  # from there to its last

    def kill(self, kills: int) -> None:
        """Kill trainings so many times in all."""
        seen = self.seen
        while seen.kills < kills:
            planned = min(kills - seen.kills, self._dice.randint(4, 8))
            # In every third training several batches lie between two checkpoints, in the others none do.
            every = self._training / 12 if seen.trainings % 3 == 2 else 0.0
            self._train(Cell(self._shape, self._folder / f"training {seen.trainings}"), every, planned)

    def _train(self, cell: Cell, every: float, planned: int) -> None:
        """Run one training to its end, and kill it `planned` times if it lives that long."""
        until = self.seen.kills + planned

        def watch(child: subprocess.Popen[bytes]) -> None:
            run = Run(cell, child)
            while self.seen.kills < until and (process := run.next_process()) is not None:
                self._kill_once(run, process, until - self.seen.kills)

        made = cell.guarded(_options(every), SLOWLY, watch, LONGEST)
        self._walk(made.attempts)
        self._judge(made)

    def _kill_once(self, run: Run, process: psutil.Process, left: int) -> None:
        """Kill one process at an instant of its own, unless it ends before."""
        written, kind = run.written(), self._dice.random()
        if kind < EARLY:
            lives = _sleep(process, self._dice.uniform(0.0, self._start))
        else:
            wait = self._dice.uniform(0.0, 1.6 * self._training / (left + 1))
            lives = _until(lambda: run.trains(written), process) and _sleep(process, wait)
        if lives and EARLY <= kind < EARLY + SAVING:
            lives = _until(lambda: run.saves(process.pid), process)
        if not lives:
            return
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return
        _until(lambda: False, process)
        self.seen.kills += 1
        self.seen.early += not run.trains(written)
        self.seen.in_save += run.saves(process.pid)

    def _walk(self, attempts: list[Attempt]) -> None:
        """Look at the order in which the attempts of a run trained the batches of each fit."""
        trained: dict[tuple[object, ...], set[int]] = {}
        for attempt in attempts:
            for fit in dict.fromkeys(batch[:2] for batch in attempt.batches):
                batches = [batch for batch in attempt.batches if batch[:2] == fit]
                self._walk_fit(batches, trained.setdefault(fit, set()))

    def _walk_fit(self, batches: list[Batch], trained: set[int]) -> None:
        """`trained`: places of the fit's batches that earlier attempts trained, in the order of the plain run."""
        places = [self._places.get(batch[:4], -1) for batch in batches]
        self.seen.disorder += places != list(range(places[0], places[0] + len(places)))
        if trained:
            self.seen.inside.append(batches[0].batch > 0)
            self.seen.left_out += places[0] > max(trained) + 1
            self.seen.again.append(sum(place >= places[0] for place in trained))
        trained.update(places)

    def _judge(self, made: Ran) -> None:
        plain, seen = self._plain, self.seen
        wrong = verdicts.differences(plain, plain.last.results, made, made.last.results)
        verdict = verdicts.crash(made, plain, "") or verdicts.compared(wrong, made)
        seen.trainings += 1
        seen.said += verdict.kind == verdicts.SAID
        if verdict.kind in (verdicts.SILENT, verdicts.CRASH):
            seen.wrong += 1
            seen.troubles.append(f"{self._shape.name}: {verdict.kind}: {verdict.detail}")
        seen.troubles += [one.text for one in all_in(made.directory) if one.kind in ("aside", "trouble")]


def _options(every: float) -> tuple[str, ...]:
    return (*QUIETLY, *FOR_EVER, "--checkpoint-every", f"{every:.3f}s", "--checkpoint-cost", "100%")


def _until(holds: Callable[[], bool], process: psutil.Process) -> bool:
    """Wait until something holds; False if the process ends before, or after LONG."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        if holds():
            return True
        try:
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:  # it ended between the two
            return False
        time.sleep(LOOK)
    return False


def _sleep(process: psutil.Process, seconds: float) -> bool:
    """Wait so long; False if the process ends before."""
    end = time.monotonic() + seconds
    return _until(lambda: time.monotonic() >= end, process)
