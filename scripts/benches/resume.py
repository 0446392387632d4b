"""`scripts/bench resume [--kills N]`: is a killed training resumed exactly, how soon, and what do its checkpoints cost?

Runs ten scripts as users write them (exactness/scripts_*.py) under `stallguard run`, kills each with SIGKILL at random
instants (before the first batch, inside batches, inside saves), and compares the order of the batches of every
attempt, and the end, with those of the plain training, bit for bit.  The checkpoints are made far oftener than in real
life; a third of the kills wait for one.

Then: the time from a restart to the next trained batch against that of a plain start, and the cost of a checkpoint of
25 million parameters with Adam, with the rest that it makes the next one wait.  `--kills 300` is the full proof.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from exactness import verdicts
from exactness.catalog import SHAPES
from exactness.cells import QUIETLY
from exactness.runs import Attempt, Batch, Cell, Ran
from exactness.shape import Shape
from exactness.statements import all_in
from harness.children import BENCHES, environment
from harness.results import Goal, concluded, table
from stallguard.launch.environment import child_environment
from stallguard.probe import wire
from stallguard.probe.settings import VARIABLE, ProbeSettings, encode

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
        return is_saving(self._pages / f"{pid}.page")


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
            lives = lives_for(process, self._dice.uniform(0.0, self._start))
        else:
            wait = self._dice.uniform(0.0, 1.6 * self._training / (left + 1))
            lives = lives_until(lambda: run.trains(written), process) and lives_for(process, wait)
        if lives and EARLY <= kind < EARLY + SAVING:
            lives = lives_until(lambda: run.saves(process.pid), process)
        if not lives:
            return
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return
        lives_until(lambda: False, process)
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


def is_saving(page: Path) -> bool:
    """Return whether the record of a process says that it makes a checkpoint."""
    try:
        record = wire.unpack(page.read_bytes())
    except OSError:
        return False
    return record is not None and record["phase"] == CHECKPOINT


def lives_until(holds: Callable[[], bool], process: psutil.Process) -> bool:
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


def lives_for(process: psutil.Process, seconds: float) -> bool:
    """Wait so long; False if the process ends before."""
    end = time.monotonic() + seconds
    return lives_until(lambda: time.monotonic() >= end, process)


CHILD = BENCHES / "resume_child.py"
ATTEMPT = 240.0  # seconds that an attempt may take
EPOCHS = "10"  # of the child's fits


@dataclass
class Start:
    """What one attempt did.  `first`: seconds to its first batch, None if it did not get there."""

    first: float | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)


class Place:
    """A folder with what the attempts of one run share: socket, pages, checkpoints."""

    def __init__(self, folder: Path, every: float, share: float = 1.0) -> None:
        """`every`: seconds between two checkpoints inside an epoch; `share` of the time that they may take."""
        self.folder, self._every, self._share = folder, every, share
        self.checkpoints = folder / "checkpoints"
        self.checkpoints.mkdir()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "s"))
        self._socket.setblocking(False)

    def close(self) -> None:
        self._socket.close()

    def attempt(self, kind: str, *, resume: bool, kill_after: float | None = None, guarded: bool = True) -> Start:
        """Run the child once.  `kill_after`: seconds from its first batch to its end by SIGKILL."""
        made, began = Start(), time.monotonic()
        with subprocess.Popen(
            [sys.executable, str(CHILD), kind], env=self._environment(resume, guarded), cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as child:  # fmt: skip
            self._watch(child, made, began, kill_after)
        return made

    def _environment(self, resume: bool, guarded: bool) -> dict[str, str]:
        user = environment(EPOCHS=EPOCHS, TF_CPP_MIN_LOG_LEVEL="3")
        if not guarded:
            return user
        wish = ProbeSettings(
            socket=str(self.folder / "s"), pages=str(self.folder), token=1, checkpoints=str(self.checkpoints),
            resume=resume, checkpoint_every=self._every, checkpoint_cost=self._share,
        )  # fmt: skip
        return child_environment(user) | {VARIABLE: encode(wish)}

    def _watch(self, child: subprocess.Popen[bytes], made: Start, began: float, kill_after: float | None) -> None:
        """Read until the child ends; end it when its time has come.  What its probe sends is read and dropped."""
        assert child.stdout is not None  # noqa: S101
        end, lines, ended = began + ATTEMPT, b"", False
        while not ended:
            sources: list[Any] = [child.stdout, self._socket]
            ready, _, _ = select.select(sources, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                child.kill()
                end = time.monotonic() + ATTEMPT
            if self._socket in ready:
                self._socket.recv(4096)
            if child.stdout in ready:
                piece = os.read(child.stdout.fileno(), 1 << 16)
                lines, ended = lines + piece, not piece
                if made.first is None and b"training\n" in lines:
                    made.first = time.monotonic() - began
                    end = end if kill_after is None else time.monotonic() + kill_after
        made.rows = [json.loads(line) for line in lines.splitlines() if line.startswith(b"{")]


KILLS, PAIRS = 30, 7
IN_SAVES = 0.2  # of the kills, at least
LATER, SHARE = 0.5, 0.01  # seconds; of the training time
HEAD = (
    "script", "kills", "before 1st batch", "inside a save", "trainings", "went on inside an epoch",
    "batches done again", "left out", "out of order", "said", "wrong",
)  # fmt: skip


def row(name: str, seen: Kills) -> tuple[str, ...]:
    return (
        name, str(seen.kills), str(seen.early), str(seen.in_save), str(seen.trainings),
        f"{sum(seen.inside)} of {len(seen.inside)}", f"{sum(seen.again)}, at most {max(seen.again, default=0)}",
        str(seen.left_out), str(seen.disorder), str(seen.said), f"{seen.wrong} of {seen.trainings}",
    )  # fmt: skip


def killing(kills: int, seed: int, names: list[str]) -> list[Goal]:
    dice = random.Random(seed)
    shapes = {shape.name: shape for shape in SHAPES}
    found = {}
    for index, name in enumerate(names):
        share = kills // len(names) + (index < kills % len(names))
        with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
            chains = Chains(shapes[name], dice, Path(folder))
            chains.kill(share)
        found[name] = chains.seen
        print(f"{name}: {share} kills, {chains.seen.wrong} wrong", file=sys.stderr, flush=True)
    print(table(HEAD, [row(name, seen) for name, seen in found.items()]))
    everything = list(found.values())
    for trouble in sorted({text for seen in everything for text in seen.troubles}):
        print(f"trouble: {trouble}")
    in_saves = sum(seen.in_save for seen in everything)
    print(f"kills inside a save: {in_saves} of {kills}")
    return [
        Goal("fits that left a batch out", sum(seen.left_out for seen in everything), 0),
        Goal("fits that trained batches out of order", sum(seen.disorder for seen in everything), 0),
        Goal("trainings with wrong results", sum(seen.wrong for seen in everything), 0),
        Goal("troubles", sum(len(seen.troubles) for seen in everything), 0),
        Goal("kills that missed a save", kills - in_saves, kills - IN_SAVES * kills),
    ]  # fmt: skip


def restarting(pairs: int) -> Goal:
    """Compare the time to the next trained batch after a restart with that of a plain start, in pairs."""
    plain, resumed = [], []
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        place = Place(Path(folder), 0.0)
        place.attempt("tfdata", resume=False, kill_after=0.25)
        kept = place.folder / "kept"
        shutil.copytree(place.checkpoints, kept)
        for _ in range(pairs):
            plain.append(place.attempt("tfdata", resume=False, guarded=False, kill_after=0.0).first or 0.0)
            shutil.rmtree(place.checkpoints)
            shutil.copytree(kept, place.checkpoints)
            resumed.append(place.attempt("tfdata", resume=True, kill_after=0.0).first or 0.0)
        place.close()
    later = statistics.median(b - a for a, b in zip(plain, resumed, strict=True))
    print(
        f"\nfrom start to the next trained batch, {pairs} pairs: plain {statistics.median(plain):.2f} s, "
        f"resumed {statistics.median(resumed):.2f} s, later by {later:+.2f} s"
    )
    return Goal("seconds that a resumed start takes longer", later, LATER)


def costs() -> Goal:
    """Print what checkpoints of a large model cost, and return the largest share of the time that they may take."""
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as folder:
        place = Place(Path(folder), 1.0, SHARE)  # so often that only the share bounds it
        rows = place.attempt("large", resume=False).rows
        files = [path.stat().st_size for path in place.checkpoints.rglob("tensors.bin")]
        place.close()
    saves = [row for row in rows if "cost" in row]
    print(f"checkpoint of {rows[-1]['parameters'] / 1e6:.1f} million parameters with Adam, {max(files) / 1e6:.0f} MB:")
    for save in saves:
        print(f"    {save['cost']:.2f} s; the next not before {save['rest']:.0f} s more of training")
    share = max((save["cost"] / (save["cost"] + save["rest"]) for save in saves), default=1.0)
    print(f"largest share of the training time: {share:.2%}")
    return Goal("share of the time for checkpoints", round(share, 4), SHARE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench resume")
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of a plain start and a resumed one, that are timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(SCRIPTS), metavar="SCRIPT,...")
    options = parser.parse_args()
    began = time.monotonic()
    goals = [*killing(options.kills, options.seed, options.only.split(",")), restarting(options.pairs), costs()]
    return concluded(goals, f"\n{time.monotonic() - began:.0f} s; ")


if __name__ == "__main__":
    sys.exit(main())
