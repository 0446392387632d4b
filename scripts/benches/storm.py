"""`scripts/bench storm [--faults N]`: does a training end as if nothing had happened, with a fault every 15 seconds?

Runs a Keras fit as the job of a service manager, and plays faults on it, on stallguard and on the disk, drawn with a
seed (faults/play.py); the next night begins if a training ends before the last fault.  Afterwards each is compared with
the undisturbed training: exit code, weights, optimizer, history and the lines of every batch to the bit; no process, no
socket and no temporary file is left.  In between only the service manager acts: it starts stallguard again.
`--faults 20` takes ten minutes; 200, the full proof, an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from faults import outcome
from faults.place import Place, Service, opened
from faults.play import KINDS, Fault, Played, Player, plan
from harness.children import BENCHES, environment, started
from harness.results import Goal, concluded, table
from stallguard.agent import job_memory
from stallguard.agent.job import AgentJob
from stallguard.core.limits import LEAST_PATIENCE
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

SCRIPT = BENCHES / "storm_child.py"
QUIETLY = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
FAULTS, EVERY, MINUTES = 40, 15.0, 3.0
TRIAL = 3  # epochs from which the time of one is measured
PATIENCE = 0.2  # seconds until a fault that found nothing to hit is tried again
ENDING = 900.0  # seconds that a training may need for its end after the last fault, besides its own time
THROTTLE = 1  # seconds between two starts of stallguard
# What a user sets for such a night: no number of faults is too many, checkpoints every two seconds, and a training that
# was killed for memory keeps its batch, because slices would round otherwise.
SETTINGS = (
    "policy.max_restarts=1000", "policy.no_progress_limit=1000", "policy.backoff=0s", "agent.max_restarts=1000",
    "checkpoint.every=2s", "checkpoint.cost=20%", f"detector.patience={LEAST_PATIENCE}",
    "policy.causes=out-of-memory-kill=restart,out-of-memory=restart,native-crash=restart", "notify.desktop=off",
)  # fmt: skip
HEAD = ("fault", "played", "recovered", "median s", "p95 s", "longest s")


class Night(NamedTuple):
    """A training in the storm.  `recovered`: seconds from each fault to the next new batch."""

    faults: list[Played]
    recovered: list[float]
    seconds: float
    again: int  # batches done again
    attempts: int
    troubles: list[str]


def undisturbed(place: Path, epochs: int) -> float:
    """Train without stallguard in `place`; return the seconds that it took."""
    place.mkdir()
    began = time.monotonic()
    command = [sys.executable, str(SCRIPT), str(epochs), str(place)]
    with started(command, place / "home", place, place / "printed", **QUIETLY) as child:
        if child.wait():
            raise subprocess.CalledProcessError(child.returncode, command)
    return time.monotonic() - began


def epochs_for(minutes: float, folder: Path) -> int:
    """Return how many epochs take so long here; at least two."""
    undisturbed(folder, TRIAL)
    times = [one.time for one in outcome.notes(folder).batches]
    begins = times[:: len(times) // TRIAL]
    return max(2, round(minutes * 60 / (begins[-1] - begins[1]) * (TRIAL - 2)))


def job(place: Place, epochs: int) -> AgentJob:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    command = ("--", str(SCRIPT), str(epochs), str(place.orders))
    return AgentJob(
        name="storm", python=sys.executable, run=("--python", sys.executable, *settings, *command),
        cwd=str(place.work), log=str(place.folder / "job.log"), throttle=THROTTLE,
        env=environment(place.home, **QUIETLY, HOME=str(place.folder), TMPDIR=str(place.temporary)),
    )  # fmt: skip


def play(faults: list[Fault], player: Player, service: Service, every: float) -> list[Played]:
    played, due = list[Played](), time.monotonic() + every
    while faults and not service.is_over:
        if time.monotonic() < due:
            service.wait(min(PATIENCE, due - time.monotonic()))
            continue
        done = player.play(faults[0]) if faults[0].kind in player.possible() else None
        if done is None:
            service.wait(PATIENCE)
            continue
        fault, due = faults.pop(0), max(done.at + every, time.monotonic())
        played.append(done)
        lasts = f" for {fault.lasts:.0f} s" if fault.lasts else ""
        print(f"{KINDS[fault.kind].title}{lasts}; {len(faults)} to go", file=sys.stderr, flush=True)
    return played


def night(place: Place, faults: list[Fault], plain: Path, epochs: int, every: float, longest: float) -> Night:
    """Train once in the storm.  Removes the faults that were played from `faults`."""
    os.environ["STALLGUARD_HOME"] = str(place.home)
    job_memory.keep("storm", job_memory.JobMemory(wanted=True))
    service = Service(job(place, epochs))
    began = time.monotonic()
    service.start()
    player = Player(place, service)
    try:
        played = play(faults, player, service, every)
        is_over = service.wait(longest)
        ended = time.monotonic()
        player.close()
        return judged(place, plain, service, played, (began, ended if is_over else math.inf))
    finally:
        service.close()
        player.close()
        for pid in outcome.processes(place):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def judged(place: Place, plain: Path, service: Service, played: list[Played], span: tuple[float, float]) -> Night:
    """Return what became of a night.  `span`: when it began, and when it ended; infinite: not in time."""
    runs, notes = list_runs(place.home / "runs"), outcome.notes(place.orders)
    troubles = [] if len(runs) == 1 else [f"{len(runs)} runs instead of one"]
    run = RunDir(runs[0].path)
    end = run_files.outcome(run)
    if math.isinf(span[1]):
        troubles.append("the job did not end in time")
    if end is None or end.code:
        troubles.append(f"the run ended with {end.code}: {end.why}" if end else "the run has no outcome")
    elif service.codes[-1:] != [0]:
        troubles.append(f"stallguard ended with {service.codes[-1:]}")
    troubles += outcome.differences(plain, place.work)
    troubles += [] if outcome.is_alone(notes.batches) else ["two processes trained at the same time"]
    troubles += [f"stallguard's own error: {text}" for text in outcome.own_errors(run)]
    troubles += [f"left: {text}" for text in outcome.remains(place)]
    faults = outcome.begun(played, notes.halts)
    done = span[1] if end is not None and end.code == 0 else math.inf
    recovered = outcome.recoveries(faults, outcome.news(notes.batches), outcome.supervised(run), done)
    seconds = min(span[1], time.monotonic()) - span[0]
    return Night(faults, recovered, seconds, outcome.again(notes.batches), end.attempts if end else 0, troubles)


def rows(nights: Sequence[Night]) -> list[tuple[str, ...]]:
    """Return a row a kind, and one for all."""
    pairs = [pair for one in nights for pair in zip(one.faults, one.recovered, strict=True)]
    found = []
    for name, title in [*((kind.name, kind.title) for kind in KINDS.values()), ("", "all")]:
        seconds = sorted(taken for fault, taken in pairs if name in ("", fault.kind))
        whole = [one for one in seconds if math.isfinite(one)]
        if seconds:
            figures = (statistics.median(whole), whole[int(len(whole) * 0.95)], whole[-1]) if whole else ()
            shown = tuple(f"{figure:.1f}" for figure in figures) or ("-",) * 3
            found.append((title, str(len(seconds)), str(len(whole)), *shown))
    return found


def goals(nights: Sequence[Night], asked: int) -> list[Goal]:
    played = sum(len(one.faults) for one in nights)
    lost = sum(math.isinf(taken) for one in nights for taken in one.recovered)
    return [
        Goal("faults that were not played", asked - played, 0),
        Goal("faults that were not recovered from", lost, 0),
        Goal("troubles", sum(len(one.troubles) for one in nights), 0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench storm")
    parser.add_argument("--faults", type=int, default=FAULTS)
    parser.add_argument("--every", type=float, default=EVERY, help="seconds between two faults")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of pure training a night")
    parser.add_argument("--epochs", type=int, default=0, help="of a night, in place of --minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="FAULT,...", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--keep", type=Path, help="where the nights with troubles stay")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(KINDS)
    if unknown := [name for name in wanted if name not in KINDS]:
        parser.error(f"no fault {unknown[0]!r}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    nights: list[Night] = []
    with tempfile.TemporaryDirectory(prefix="sg-storm-") as folder:
        plain = Path(folder) / "plain"
        epochs = options.epochs or epochs_for(options.minutes, Path(folder) / "trial")
        seconds = undisturbed(plain, epochs)
        print(f"undisturbed: {epochs} epochs in {seconds:.0f} s", file=sys.stderr, flush=True)
        faults, left_out = chosen(options, wanted)
        asked = len(faults)
        while faults:
            with opened() as place:
                nights.append(night(place, faults, plain, epochs, options.every, 10 * seconds + ENDING))
                if options.keep and nights[-1].troubles:
                    keep(place, options.keep / str(len(nights)))
            if not nights[-1].faults:
                break  # nothing can be played any more
    print(table(HEAD, rows(nights)))
    print(*left_out, sep="\n")
    for number, one in enumerate(nights, 1):
        print(*(f"night {number}: {text}" for text in one.troubles), sep="\n", end="\n" * bool(one.troubles))
    wall, batches = sum(one.seconds for one in nights), sum(one.again for one in nights)
    print(
        f"{len(nights)} nights, {sum(one.attempts for one in nights)} attempts, {batches} batches done again; "
        f"effective training time {len(nights) * seconds / wall:.0%} of {wall:.0f} s\n"
        f"settings of the nights: {' '.join(SETTINGS)} agent.throttle={THROTTLE}s"
    )
    found = goals(nights, asked)
    return concluded(found)


def chosen(options: argparse.Namespace, wanted: list[str]) -> tuple[list[Fault], list[str]]:
    """Return the faults to play, and what is to be said of those that this machine does not have."""
    said = ["clock step: left out, because it would move the clock of every program on this machine"]
    with opened() as place:
        if place.has_disk:
            said.append("disk: a tmpfs of its own for the runs; read-only: a read-only mount over it")
        else:
            wanted = [name for name in wanted if name not in ("full", "read-only")]
            said.append("full and read-only disk: left out, because no file system can be mounted here")
        player = Player(place, Service(job(place, 0)))
        is_real = player.group is not None
        player.close()
    killer = "the kernel, in a control group without memory" if is_real else "imitated by kill -9"
    said.append(f"out of memory: {killer}")
    return plan(options.seed, options.faults, wanted), said


def keep(place: Place, where: Path) -> None:
    """Copy what a night left, for a reader."""
    import shutil

    with contextlib.suppress(shutil.Error):  # sockets are not copied
        shutil.copytree(place.folder, where, dirs_exist_ok=True, symlinks=True)


if __name__ == "__main__":
    sys.exit(main())
