"""Puts what people read of a run into the store while the run goes on: only what changed, and bounded.

The thread of publishing.py calls `renew`; its cost is part of that thread's.  The index is replaced after what it
names was put, and before what it names no more is removed.  Only the newest holder of a job has its number, so no two
machines write one folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from stallguard import jsontext
from stallguard.fleet import run_index
from stallguard.fleet.orders import RunStatus
from stallguard.fleet.records import is_path
from stallguard.fleet.run_index import CHUNK, EVIDENCE, Growing, Index, Whole
from stallguard.fleet.store import Store
from stallguard.storage import journal, rotation, run_files
from stallguard.storage.paths import RunDir

AT_ONCE = 64  # chunks that one renewal puts of a file


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
        self._store.replace(run_index.status_key(self._job, self._number), jsontext.readable(status))

    def renew(self, at_once: int = AT_ONCE, *, is_read: bool = False) -> bool:
        """Put what changed since the last time, at most `at_once` chunks of a file; return whether that is all.

        `is_read`: a reader waits for a newer index, also an equal one.
        """
        self._is_behind = False
        files, left_out = self._small()
        growing: list[Growing] = []
        for parts in (journal.parts(self._run.journal), journal.parts(self._run.output)):
            sizes = [_size(path) for path in parts]
            most = run_index.MOST[parts[0].name.partition(".")[0]] if parts else 0
            for path, size, share in zip(parts, sizes, run_index.shares(sizes, most), strict=True):
                is_cut = share < size and path.suffix == rotation.PACKED  # then nothing of it can be read
                put = self._grown(path, share, at_once) if share and not is_cut else None
                growing += [put] if put else []
                left_out += size - put.size + put.goes_on - put.cut if put else size
        index = Index(
            run_index.SCHEMA, self._run.id, self._host, run_files.utc(), tuple(files), tuple(growing), left_out
        )  # fmt: skip
        before = self._index
        if is_read or before is None or msgspec.structs.replace(before, at=index.at) != index:
            self._store.replace(run_index.index_key(self._job, self._number), jsontext.readable(index))
            self._index = index
            self._clean({one.id: one for one in growing})
        return not self._is_behind

    def _small(self) -> tuple[list[Whole], int]:
        """Put the small files that changed; return all that the store has, and the bytes that it does not get."""
        here = [self._run.path / name for name in run_index.SMALL]
        # The newest incident first: of very many the oldest are left out.
        evidence = sorted((self._run.path / EVIDENCE).glob("*/**/*"), key=_incident, reverse=True)
        files: list[Whole] = []
        room, left_out = run_index.TEXTS_MAX, 0
        for path in [*here, *evidence]:
            name = path.relative_to(self._run.path).as_posix()
            if path.is_symlink() or not path.is_file() or not is_path(name):
                continue
            facts = path.stat()
            if path not in here:
                if not name.endswith(run_index.TEXTS):
                    continue
                if facts.st_size > min(run_index.TEXT_MAX, room) or len(files) >= run_index.FILES_MAX:
                    left_out += facts.st_size
                    continue
                room -= facts.st_size
            whole = Whole(name, facts.st_size, f"{facts.st_ino}-{facts.st_mtime_ns}")
            if self._wholes.get(name) != whole:
                self._store.put(run_index.file_key(self._job, self._number, name), path)
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
            cut, goes_on = run_index.hole(facts.st_size, share)
            goal = Growing(path.name, put.id, facts.st_size, cut, goes_on)
            missing = run_index.chunks(goal, put.size) if put.size < facts.st_size else []
            self._is_behind |= len(missing) > at_once
            for number in missing[:at_once]:
                file.seek(number * CHUNK)
                data = file.read(CHUNK)
                self._store.replace(run_index.part_key(self._job, self._number, put.id, number), data)
                put.chunks.add(number)
                put.size = number * CHUNK + len(data)
        return Growing(path.name, put.id, put.size, cut, goes_on)

    def _clean(self, wanted: dict[int, Growing]) -> None:
        """Remove the chunks that the index names no more."""
        for key, put in list(self._puts.items()):
            file = wanted.get(put.id)
            named = set(run_index.chunks(file, 0)) if file else set()
            for number in sorted(put.chunks - named):
                self._store.remove(run_index.part_key(self._job, self._number, put.id, number))
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
