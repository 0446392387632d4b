"""The generations of a job: how one is published, and how another machine gets it.

**Published** are its files first, then its entry, then the files that are needed no more go.

A file that the store has from this holder already is not put again.  Content that was removed is put under a new name:
a removal whose answer was lost can be done later, and must not hit what was put since.

Which files can go, without asking who reads:

- A holder removes files under its own number only after an entry of its own was acknowledged, and keeps those of the
  newest KEPT that were.  So the newest generation of the log is complete at any time, also one whose acknowledgement
  was lost, and also if the holder is an old one that does not know it.
- It removes what holders before it left once it has KEPT entries of its own: a reader starts from the newest.

A member of a fleet signs each entry with its files: what a training goes on from comes from a member, also if others
can write to the store (`verify`).

Steps as in joblog.py.

**Its files** are those of a run's checkpoints at one instant, in a directory of their own, while the training goes on.
They are linked, not copied: a generation is never changed, only replaced, and a link keeps its content when it goes.
The copies of what callbacks write (`files/`) grow in place, so those are copied.  A training that saves meanwhile would
mix two moments, as no interruption could leave them: then the links are made again.  The layout is that of
probe/checkpoint (generations.py), which is loaded by path and cannot be imported.

**Got** is a published generation whole and verified, or not at all (`fetch_generation`).  Which one a run of this
machine goes on from is one small file in its directory (Lineage): if that is still the newest of the job, the
checkpoints here are the same or further, and nothing needs to be fetched.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.store import Store, joblog, records
from stallguard.fleet.store.joblog import Steps, StoreRequest, Tail
from stallguard.fleet.store.records import TRACKERS, Damaged, Generation, HolderEnd, Position, StoredFile
from stallguard.fleet.store.signing import NotSigned, Signatures
from stallguard.storage import private, run_files
from stallguard.storage.paths import SEED, RunDir, list_runs

KEPT = 2
_UPLOAD = re.compile(r"[1-9][0-9]*-[0-9a-f]{16}")  # names of what `publish` puts: nothing else is removed by its name
TRIES = 5
POINTERS = ("CURRENT", "BETWEEN_EPOCHS")
GROWING = "files"
PIECE = 1 << 20

Listing = dict[str, tuple[str, ...]]  # a fit's directory -> its generations that are kept, oldest first
SCHEMA = 1
NAME = "job.json"


# What results can depend on to the bit: which instructions and which kernels of the system's libraries compute.
FACTS = ("system", "version", "machine", "chip", "rosetta")


class Found(NamedTuple):
    """A file of the generation that is to be published.  `content`: what Store.put takes."""

    path: str
    size: int
    digest: str
    content: Any


class Publication:
    """The publications of the holder with one number.  `tail`: of the log, as far as this holder has read it."""

    def __init__(self, job: str, number: int, tail: Tail, signatures: Signatures | None = None) -> None:
        """`tail`: with the holder's claim; `signatures`: of this member, None for who is in no fleet."""
        self.tail, self._signatures = tail, signatures
        self._job, self._number = job, number
        self._names: dict[str, str] = {}  # of the content that the store has, by digest
        self._kept: list[Generation] = []  # acknowledged, oldest first
        self._uploads = 0  # tried so far

    def publish(self, run: str, at: str, position: Position | None, found: Sequence[Found]) -> Steps[None]:
        """Publish a generation.  Raises Fenced, and StoreError; what was put by then is not put again."""
        for one in found:
            if one.digest not in self._names:
                self._uploads += 1
                name = f"{self._uploads}-{one.digest[:16]}"
                yield StoreRequest("put", records.data_key(self._job, self._number, name), one.content)
                self._names[one.digest] = name
        files = tuple(StoredFile(one.path, one.size, one.digest, self._names[one.digest]) for one in found)
        entry = Generation(number=self._number, at=at, claim=0, run=run, files=files, position=position)
        if self._signatures is not None:
            signed = self._signatures.sign(records.data_folder(self._job, self._number), _digest(entry))
            entry = replace(entry, signed=signed.decode())
        self.tail = yield from joblog.append(self._job, self.tail, self._number, entry)
        newest = self.tail.generation
        if newest is not None and newest.number == self._number and newest not in self._kept:
            self._kept = [*self._kept, newest][-KEPT:]

    def clean(self) -> Steps[None]:
        """Remove what is needed no more; only right after `publish` has returned.  Raises StoreError."""
        wanted = {file.name for entry in self._kept for file in entry.files}
        self._names = {digest: name for digest, name in self._names.items() if name in wanted}
        for name in (yield StoreRequest("names", records.data_folder(self._job, self._number))):
            if name not in wanted and _UPLOAD.fullmatch(name):
                yield StoreRequest("remove", records.data_key(self._job, self._number, name))
        if len(self._kept) < KEPT:
            return
        for number in (yield StoreRequest("names", f"jobs/{self._job}/{records.DATA}")):
            if number.isdecimal() and int(number) < self._number:
                yield StoreRequest("remove", records.data_folder(self._job, int(number)))

    def conclude(self, run: str, at: str, code: int, why: str, **facts: Any) -> Steps[None]:
        """Publish how the run ended, and free the lease.  `facts`: of HolderEnd.  Raises Fenced, and StoreError."""
        entry = HolderEnd(number=self._number, at=at, claim=0, run=run, code=code, why=why, **facts)
        self.tail = yield from joblog.append(self._job, self.tail, self._number, entry)


def verify(entry: Generation, job: str, signatures: Signatures) -> None:
    """Raise NotSigned if no member of the fleet, or one that is revoked, published a generation of `job`."""
    if not entry.signed:
        raise NotSigned("no member of the fleet signed it")
    place = records.data_folder(job, entry.number)
    if signatures.verified(place, entry.signed.encode()).content != _digest(entry):
        raise NotSigned("its signature is of other files")


def _digest(entry: Generation) -> bytes:
    """Return JSON of the digest of what makes a generation, wherever it is in the log."""
    content = jsontext.exact((entry.run, entry.files, entry.position))
    return jsontext.exact(sha256(content).hexdigest())


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
            found[fit.relative_to(checkpoints).as_posix()] = tuple(sorted(kept, key=lambda name: int(name[1:])))
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
    return Position(sum(row.fit for row in rows), sum(row.epoch for row in rows), sum(row.batch for row in rows))


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


class Lineage(msgspec.Struct, frozen=True):
    """`slot`: of the newest generation that the run's checkpoints contain; 0: none was published."""

    schema: int
    store: str
    job: str
    slot: int


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what differs between two machines' facts (host.system.facts) and can change a result, "" if nothing."""
    pairs = [(before.get(name), now.get(name)) for name in FACTS]
    return ", ".join(f"{then or 'unknown'} -> {here or 'unknown'}" for then, here in pairs if then != here)


def keep(run: RunDir, store: str, job: str, slot: int) -> None:
    """Write the file, atomically.  Raises OSError."""
    run_files.write(run.path / NAME, Lineage(SCHEMA, store, job, slot))


def recall(run: RunDir) -> Lineage | None:
    """Return what the file says, None if there is none or it is damaged."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return jsontext.decode((run.path / NAME).read_bytes(), Lineage)
    return None


def runs_of(store: str, job: str = "") -> Iterator[tuple[RunDir, str]]:
    """Yield the runs here of a store's jobs, or of one of them, each with its job; the newest last."""
    for run in list_runs():
        known = recall(run)
        if known is not None and known.store == store and job in ("", known.job):
            yield run, known.job


def newest(store: str, job: str, slot: int) -> RunDir | None:
    """Return the newest run here whose checkpoints contain the job's newest generation, at `slot`."""
    wanted = Lineage(SCHEMA, store, job, slot)
    runs = reversed(list_runs())
    return next((run for run in runs if recall(run) == wanted and run.has_checkpoints()), None)
