"""Which runs are kept, and the removal of the others, so that the disk does not fill up.

`choose` decides from values; `look` and `remove` access the disk.  A live run is never removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from stallguard.config.table import KeepSettings
from stallguard.core.messages import duration
from stallguard.core.text import counted
from stallguard.host.psutil_errors import ERRORS
from stallguard.storage import paths, run_files
from stallguard.storage.paths import LATEST, RunDir, list_runs
from stallguard.units import show_size

SWEEP_AFTER = 3600.0  # seconds: a run that has just been started cannot be recognised as alive
GONE = ".gone-"  # prefix of a directory that is being removed: after a kill the next removal deletes it


class RunFacts(NamedTuple):
    """The facts of a run for the decision.  `touched`: seconds since the epoch; `size`: bytes on the disk."""

    run: RunDir
    touched: float
    size: int
    alive: bool


class Removal(NamedTuple):
    """A run to remove, and why."""

    run: RunDir
    size: int
    why: str


def choose(runs: Sequence[RunFacts], keep: KeepSettings, now: float) -> list[Removal]:
    """Return the runs to remove, oldest first.  `runs`: oldest first; `now`: seconds since the epoch.

    The newest that is no trial is kept by any rule: it is what `last` means, and each is too old by a wrong clock.
    """
    newest = paths.newest([facts.run for facts in runs]) if runs else None
    room = keep.size
    removals = []
    for rank, facts in enumerate(reversed(runs), start=1):
        room -= facts.size
        why = ""
        if rank > keep.runs:
            why = f"more than {counted(keep.runs, 'run')} {'is' if keep.runs == 1 else 'are'} newer"
        elif now - facts.touched > keep.age:
            why = f"older than {duration(keep.age)}"
        elif room < 0:
            why = f"all runs together take more than {show_size(keep.size)}"
        if why and not facts.alive and facts.run != newest:
            removals.append(Removal(facts.run, facts.size, why))
            room += facts.size
    return removals[::-1]


def look(runs: Path | None = None) -> list[RunFacts]:
    """Return the facts of all runs, oldest first."""
    found = []
    for run in list_runs(runs):
        newest = run.journal if run.journal.exists() else run.asked
        found.append(RunFacts(run, newest.stat().st_mtime, _size(run.path), is_alive(run)))
    return found


def _size(path: Path) -> int:
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):  # removed in the meantime
                total += os.lstat(f"{directory}/{name}").st_blocks * 512  # POSIX: st_blocks counts 512 bytes
    return total


def is_alive(run: RunDir) -> bool:
    """Return whether stallguard guards the run, or its training is alive without a stallguard."""
    return run_files.state(run) == "running" or any(map(_is_training, run.probe.glob("*.page")))


def _is_training(page: Path) -> bool:
    """Return whether the process of the page is alive; a later process with its pid is younger than the page."""
    try:
        return psutil.Process(int(page.stem)).create_time() <= page.stat().st_mtime
    except (psutil.Error, ValueError, FileNotFoundError):  # gone, of another user, or not a page of the probe
        return False
    except ERRORS:  # not known: a run that can still be training is not removed
        return True


def prune(keep: KeepSettings, runs: Path, *, dry: bool = False) -> list[Removal]:
    """Remove the runs that exceed `keep`; return them.  `dry`: remove nothing.  A run that cannot be removed stays."""
    if not runs.is_dir():
        return []
    removals = choose(look(runs), keep, time.time())
    if dry:
        return removals
    for rest in runs.glob(f"{GONE}*"):
        shutil.rmtree(rest, ignore_errors=True)
    for item in removals:
        path = item.run.path
        # Busy, for example a working directory on some file systems: the next time.
        with contextlib.suppress(OSError):
            shutil.rmtree(path.replace(path.with_name(f"{GONE}{path.name}")), ignore_errors=True)
    link = runs / LATEST
    if link.is_symlink() and not link.exists():
        link.unlink()
        left = list_runs(runs)
        if left:
            paths.point_latest(paths.newest(left))
    sweep()
    return removals


def sweep(places: Sequence[Path] | None = None) -> None:
    """Remove the socket directories whose run is over, which remain after a kill."""
    for place in paths.sockets_dirs() if places is None else places:
        for found in place.glob(f"{paths.SOCKETS}*"):
            with contextlib.suppress(OSError):  # of another user
                owner = RunDir(Path(os.fsdecode((found / paths.OWNER).read_bytes())))
                old = time.time() - found.stat().st_mtime > SWEEP_AFTER
                if old and not is_alive(owner):
                    paths.remove_sockets(found)
