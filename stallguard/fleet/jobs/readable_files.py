"""Puts what people read of a run into the store while the run goes on: only what changed, and bounded.

The thread of publishing.py calls `renew`; its cost is part of that thread's.  The index is replaced after what it
names was put, and before what it names no more is removed.  Only the newest holder of a job has its number, so no two
machines write one folder.

    jobs/<job>/runs/<number>/index           Index: what is there; replaced after what it names was put
    jobs/<job>/runs/<number>/status          RunStatus: how a run stands that is in no card of a machine
    jobs/<job>/runs/<number>/files/<path>    a small file of the run, whole
    jobs/<job>/runs/<number>/parts/<id>/<n>  CHUNK bytes of a file that grows; the last one can be shorter

A file that grows keeps its id when it is renamed, so a journal of which a part is turned is not put again.  Of a large
file the beginning and the newest bytes are there: the beginning has the request, the end what happened last.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.store import Store
from stallguard.fleet.store.orders import JOB_NAME, RunStatus
from stallguard.fleet.store.records import RUNS, Damaged, is_path
from stallguard.storage import journal, rotation, run_files
from stallguard.storage.paths import RunDir

AT_ONCE = 64  # chunks that one renewal puts of a file
SCHEMA = 1
CHUNK = 1 << 18  # bytes: the last chunk of a file that grows is put again each time
MOST = {"journal": 64 << 20, "output": 32 << 20}  # bytes that the store has of each, in all their parts
SMALL = ("run.json", "outcome.json", "job.json", "notifications.json")
EVIDENCE = "incidents"
TEXTS = (".txt", ".json", ".stacks")  # of the evidence
TEXT_MAX, TEXTS_MAX, FILES_MAX = 1 << 20, 16 << 20, 500  # bytes of one, bytes of all, number of all
GROWING = (".jsonl", ".log", ".jsonl.gz", ".log.gz")


class _Put(msgspec.Struct):
    """What the store has of one file that grows."""

    id: int
    size: int = 0
    chunks: set[int] = msgspec.field(default_factory=set)


class ReadableFiles:
    """Of one run.  Its methods raise StoreError and OSError, and can then be called again."""

    def __init__(self, store: Store, job: str, number: int, host: str, run: RunDir) -> None:
        """`number`, `host`: of the holder."""
        self._store, self._job, self._number, self._run = store, job, number, run
        self._host = host
        self._wholes: dict[str, Whole] = {}  # in the store, by path
        self._puts: dict[tuple[int, int], _Put] = {}  # by device and inode
        self._next = 1
        self._index: Index | None = None
        self._is_behind = False

    def put_status(self, status: RunStatus) -> None:
        """Put how the run stands."""
        self._store.replace(status_key(self._job, self._number), jsontext.readable(status))

    def renew(self, at_once: int = AT_ONCE, *, is_read: bool = False) -> bool:
        """Put what changed since the last time, at most `at_once` chunks of a file; return whether that is all.

        `is_read`: a reader waits for a newer index, also an equal one.
        """
        self._is_behind = False
        files, left_out = self._small()
        growing: list[Growing] = []
        for parts in (journal.parts(self._run.journal), journal.parts(self._run.output)):
            sizes = [_size(path) for path in parts]
            most = MOST[parts[0].name.partition(".")[0]] if parts else 0
            for path, size, share in zip(parts, sizes, shares(sizes, most), strict=True):
                is_cut = share < size and path.suffix == rotation.PACKED  # then nothing of it can be read
                put = self._grown(path, share, at_once) if share and not is_cut else None
                growing += [put] if put else []
                left_out += size - put.size + put.goes_on - put.cut if put else size
        index = Index(
            SCHEMA, self._run.id, self._host, run_files.utc(), tuple(files), tuple(growing), left_out
        )  # fmt: skip
        before = self._index
        if is_read or before is None or msgspec.structs.replace(before, at=index.at) != index:
            self._store.replace(index_key(self._job, self._number), jsontext.readable(index))
            self._index = index
            self._clean({one.id: one for one in growing})
        return not self._is_behind

    def _small(self) -> tuple[list[Whole], int]:
        """Put the small files that changed; return all that the store has, and the bytes that it does not get."""
        here = [self._run.path / name for name in SMALL]
        # The newest incident first: of very many the oldest are left out.
        evidence = sorted((self._run.path / EVIDENCE).glob("*/**/*"), key=_incident, reverse=True)
        files: list[Whole] = []
        room, left_out = TEXTS_MAX, 0
        for path in [*here, *evidence]:
            name = path.relative_to(self._run.path).as_posix()
            if path.is_symlink() or not path.is_file() or not is_path(name):
                continue
            facts = path.stat()
            if path not in here:
                if not name.endswith(TEXTS):
                    continue
                if facts.st_size > min(TEXT_MAX, room) or len(files) >= FILES_MAX:
                    left_out += facts.st_size
                    continue
                room -= facts.st_size
            whole = Whole(name, facts.st_size, f"{facts.st_ino}-{facts.st_mtime_ns}")
            if self._wholes.get(name) != whole:
                self._store.put(file_key(self._job, self._number, name), path)
                self._wholes[name] = whole
            files.append(whole)
        return files, left_out

    def _grown(self, path: Path, share: int, at_once: int) -> Growing | None:
        """Put what was added to a file; return what the store has of it, None if there is no such file any more."""
        try:
            file = path.open("rb")
        except FileNotFoundError:  # it was compressed meanwhile
            return None
        with file:
            facts = os.fstat(file.fileno())
            key = (facts.st_dev, facts.st_ino)
            put = self._puts.get(key)
            if put is None or facts.st_size < put.size:
                put = self._puts[key] = _Put(self._next)
                self._next += 1
            cut, goes_on = hole(facts.st_size, share)
            goal = Growing(path.name, put.id, facts.st_size, cut, goes_on)
            missing = chunks(goal, put.size) if put.size < facts.st_size else []
            self._is_behind |= len(missing) > at_once
            for number in missing[:at_once]:
                file.seek(number * CHUNK)
                data = file.read(CHUNK)
                self._store.replace(part_key(self._job, self._number, put.id, number), data)
                put.chunks.add(number)
                put.size = number * CHUNK + len(data)
        return Growing(path.name, put.id, put.size, cut, goes_on)

    def _clean(self, wanted: dict[int, Growing]) -> None:
        """Remove the chunks that the index names no more."""
        for key, put in list(self._puts.items()):
            file = wanted.get(put.id)
            named = set(chunks(file, 0)) if file else set()
            for number in sorted(put.chunks - named):
                self._store.remove(part_key(self._job, self._number, put.id, number))
                put.chunks.discard(number)
            if file is None:
                del self._puts[key]


def _incident(path: Path) -> tuple[int, str]:
    number = path.parts[path.parts.index(EVIDENCE) + 1] if EVIDENCE in path.parts else ""
    return (int(number) if number.isdecimal() else 0), path.as_posix()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class Whole(msgspec.Struct, frozen=True):
    """A small file.  `version`: another one if its content is another."""

    path: str
    size: int
    version: str


class Growing(msgspec.Struct, frozen=True):
    """A file that grows.  Of its `size` bytes those from `cut` to `goes_on` are not in the store; equal: all are."""

    path: str
    id: int
    size: int
    cut: int = 0
    goes_on: int = 0


class Index(msgspec.Struct, frozen=True):
    """What is readable of a run.  `left_out`: bytes of parts and evidence that are on `host` alone."""

    schema: int
    run: str
    host: str
    at: str  # RFC 3339, UTC
    files: tuple[Whole, ...] = ()
    growing: tuple[Growing, ...] = ()
    left_out: int = 0


def folder(job: str, number: int) -> str:
    """Return the folder of what is readable of a run."""
    return f"jobs/{job}/{RUNS}/{number}"


def index_key(job: str, number: int) -> str:
    """Return the key of a run's index."""
    return f"{folder(job, number)}/index"


def status_key(job: str, number: int) -> str:
    """Return the key of a live run's state."""
    return f"{folder(job, number)}/status"


def file_key(job: str, number: int, path: str) -> str:
    """Return the key of a small file."""
    return f"{folder(job, number)}/files/{path}"


def part_key(job: str, number: int, file: int, chunk: int) -> str:
    """Return the key of a chunk of a file that grows."""
    return f"{folder(job, number)}/parts/{file}/{chunk}"


def hole(size: int, most: int) -> tuple[int, int]:
    """Return from where to where a file of `size` bytes is cut so that about `most` are kept; equal: nowhere.

    Cut are whole chunks, never the first one.
    """
    if size <= most:
        return 0, 0
    goes_on = -(-(size - most + CHUNK) // CHUNK) * CHUNK
    return CHUNK, min(goes_on, size // CHUNK * CHUNK)


def shares(sizes: Sequence[int], most: int) -> list[int]:
    """Return of each part of a file, oldest first, how many bytes are kept: the newest first; 0: none."""
    kept: list[int] = []
    for size in reversed(sizes):
        share = min(size, most)
        kept.append(share if share == size or share >= 2 * CHUNK else 0)
        most -= kept[-1]
    return kept[::-1]


def chunks(file: Growing, known: int) -> list[int]:
    """Return the chunks that a reader needs who has the first `known` bytes."""
    first, end = known // CHUNK, -(-file.size // CHUNK)
    cut, goes_on = file.cut // CHUNK, file.goes_on // CHUNK  # whole chunks
    if cut == goes_on:
        return list(range(first, end))
    return [*range(first, cut), *range(max(first, goes_on), end)]


def decode_index(data: bytes) -> Index:
    """Return an index.  Raises Damaged, also for a path that is not one of a run's readable files."""
    try:
        found = jsontext.decode(data, Index)
    except UNREADABLE as error:
        raise Damaged(str(error)) from error
    if found.schema != SCHEMA or not JOB_NAME.fullmatch(found.run):
        raise Damaged(f"it is the index of {found.run!r}, in schema {found.schema}")
    for whole in found.files:
        is_evidence = whole.path.startswith(f"{EVIDENCE}/") and is_path(whole.path)
        if whole.path not in SMALL and not (is_evidence and whole.path.endswith(TEXTS)):
            raise Damaged(f"{whole.path!r} is not a readable file of a run")
    for one in found.growing:
        is_name = is_path(one.path) and "/" not in one.path and one.path.endswith(GROWING)
        if not is_name or one.path.partition(".")[0] not in MOST:
            raise Damaged(f"{one.path!r} is not a readable file of a run")
        if not 0 <= one.cut <= one.goes_on <= one.size or one.cut % CHUNK or one.goes_on % CHUNK or one.id < 0:
            raise Damaged(f"the bytes of {one.path} are not those of a file")
        if one.size - (one.goes_on - one.cut) > MOST[one.path.partition(".")[0]] + 2 * CHUNK:
            raise Damaged(f"of {one.path} it names more bytes than a machine puts into a store")
    return found


def decode_status(data: bytes) -> RunStatus:
    """Return the state of a live run.  Raises Damaged."""
    try:
        return jsontext.decode(data, RunStatus)
    except UNREADABLE as error:
        raise Damaged(str(error)) from error
