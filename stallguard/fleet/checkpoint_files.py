"""The files of a run's checkpoints at one instant, in a directory of their own, while the training goes on.

They are linked, not copied: a generation is never changed, only replaced, and a link keeps its content when it goes.
The copies of what callbacks write (`files/`) grow in place, so those are copied.  A training that saves meanwhile would
mix two moments, as no interruption could leave them: then the links are made again.

The layout is that of probe/checkpoint (store.py, generations.py), which is loaded by path and cannot be imported.

`fetch_generation` brings a published generation to this machine: whole and verified, or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet import records
from stallguard.fleet.publication import Found
from stallguard.fleet.records import TRACKERS, Damaged, Generation, Position, StoredFile
from stallguard.fleet.store import Store
from stallguard.storage import private
from stallguard.storage.paths import SEED, RunDir

TRIES = 5
POINTERS = ("CURRENT", "BETWEEN_EPOCHS")
GROWING = "files"
PIECE = 1 << 20

Listing = dict[str, tuple[str, ...]]  # a fit's directory -> its generations that are kept, oldest first


class Frozen(NamedTuple):
    """`listing`: what it is a state of; `position`: how far the training had come, None: not known."""

    listing: Listing
    folder: Path
    position: Position | None


class Unstable(Exception):
    """The checkpoints changed at each try."""


def listing(checkpoints: Path) -> Listing:
    """Return the generations of each fit or loop that are needed to resume.  Raises OSError."""
    found: Listing = {}
    for fit in sorted(checkpoints.glob("*/*")):
        numbers = sorted(int(path.name[1:]) for path in fit.glob("g*") if path.name[1:].isdecimal())
        if numbers:
            kept = {f"g{numbers[-1]}", _pointed(fit / POINTERS[1])} & {f"g{number}" for number in numbers}
            found[fit.relative_to(checkpoints).as_posix()] = tuple(
                sorted(kept, key=lambda name: int(name[1:]))
            )
    return found


def freeze(checkpoints: Path, folder: Path, trackers: Path | None = None) -> Frozen:
    """Make `folder` with the files as they are at one instant.  Raises OSError, and Unstable.

    `trackers`: of the run, with what W&B, MLflow and TensorBoard go on with; its files are small.
    """
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        private.make(folder)
        before = listing(checkpoints)
        try:
            for fit, names in before.items():
                _link_fit(checkpoints / fit, folder / fit, names)
            if (checkpoints / SEED).exists():
                shutil.copyfile(checkpoints / SEED, folder / SEED)
            if trackers is not None and trackers.is_dir():
                shutil.copytree(trackers, folder / TRACKERS, symlinks=True)
        except (FileNotFoundError, shutil.Error):  # a file was replaced meanwhile
            continue
        if listing(checkpoints) == before:
            return Frozen(before, folder, position(folder, before))
    raise Unstable(f"the checkpoints in {checkpoints} change all the time")


def _link_fit(source: Path, target: Path, names: tuple[str, ...]) -> None:
    target.mkdir(parents=True)
    for name in POINTERS:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    for name in names:
        for file in sorted((source / name).rglob("*")):
            if file.is_file() and not file.is_symlink() and file.suffix != ".tmp":
                linked = target / name / file.relative_to(source / name)
                linked.parent.mkdir(parents=True, exist_ok=True)
                _link(file, linked)
    for file in sorted((source / GROWING).glob("*")):
        if file.is_file() and not file.is_symlink():
            (target / GROWING).mkdir(exist_ok=True)
            shutil.copyfile(file, target / GROWING / file.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def position(folder: Path, names: Listing) -> Position | None:
    """Return how far a frozen state is: the sums over its fits' newest generations.  Sums: no process may go back."""
    processes: dict[str, Position] = {}
    for fit, generations in names.items():
        process, _, place = fit.partition("/")
        ordinal = place.removeprefix("fit-")
        facts = _facts(folder / fit / generations[-1] / "facts.json")
        try:
            epoch, epochs, batch = facts["epoch"], facts["epochs"], facts["executions"]
            here = Position(int(ordinal), max(epoch, epochs), 1) if facts["finished"] else None
            here = here or Position(int(ordinal), int(epoch), int(batch))
        except (LookupError, ValueError, TypeError):
            return None  # of a loop of the script's own
        processes[process] = max(here, processes.get(process, here))
    rows = processes.values()
    return Position(
        sum(row.fit for row in rows), sum(row.epoch for row in rows), sum(row.batch for row in rows)
    )


def _facts(path: Path) -> Any:
    """Return the facts of a generation; the probe verifies them, here they only say how far it is."""
    try:
        return jsontext.decode(path.read_bytes().partition(b"\n")[2], dict)
    except (OSError, *UNREADABLE):
        return {}


def _pointed(pointer: Path) -> str:
    try:
        return pointer.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class Digests:
    """The files of frozen states with their digests; a file that is linked again is not read again."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], str] = {}

    def found(self, frozen: Frozen) -> list[Found]:
        """Return the files of a frozen state.  Raises OSError."""
        found, known = [], self._known
        self._known = {}
        for path in sorted(frozen.folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                facts = path.stat()
                key = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
                self._known[key] = made = known.get(key) or digest(path)
                found.append(Found(path.relative_to(frozen.folder).as_posix(), facts.st_size, made, path))
        return found


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content.  Raises OSError."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            made.update(piece)
    return made.hexdigest()


def fetch_generation(store: Store, job: str, generation: Generation, run: RunDir) -> None:
    """Make the directory `run` with the files of a generation, as a run would have left them.

    Raises StoreError, OSError, and Damaged; leaves nothing then.
    """
    private.ensure(run.path.parent)
    private.make(run.path)
    try:
        private.make(run.checkpoints)
        for file in generation.files:
            is_trackers = file.path.startswith(records.TRACKERS)
            target = (run.path if is_trackers else run.checkpoints) / file.path
            _fetch_file(store, records.data_key(job, generation.number, file.name), file, target)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def _fetch_file(store: Store, key: str, file: StoredFile, target: Path) -> None:
    private.ensure(target.parent)
    if not store.get(key, target):
        raise Damaged(f"{file.path} is not in the store")
    target.chmod(private.FILE)
    if target.stat().st_size != file.size or digest(target) != file.digest:
        raise Damaged(f"{file.path} does not match its digest")
