"""Brings what is readable of a fleet's run to this machine, so that each verb that reads a run works on it unchanged.

The copy is `<home>/fleet/mirror/<job>/<number>/<run>`, not beside the runs of this machine: lists, retention and
what is learned do not see it.  Only what changed is fetched; a file that grows is added to in place, so that it can be
followed.  What the store names is checked first (readable_files.decode_index): it can only be one of a run's
readable files, never a socket, a checkpoint, or a file elsewhere.

A run that goes well is put into the store seldom (publishing.py): who reads one that lives asks for what is new first
(`renew`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.jobs import readable_files
from stallguard.fleet.jobs.readable_files import CHUNK, Growing, Index, Whole
from stallguard.fleet.store import Store, StoreError, orders
from stallguard.fleet.store.records import Damaged
from stallguard.storage import paths, private, run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import Elsewhere

KEPT, LOCK = ".mirror.json", ".lock"
# s that a reader waits for a newer copy, and between two looks: scheduler and run see its wish within some 9 s
PATIENCE, POLL = 12.0, 0.5
TRIES = 3  # reads of the index, while what it names is removed because the file grew
CUT = "\n[stallguard: {count} bytes are left out here; they are on {host} alone]\n"


class _Part(msgspec.Struct):
    """What is here of a file that grows.  `read`: bytes of the original so far; `size`: of the copy."""

    path: str
    read: int = 0
    size: int = 0


class _KeptFiles(msgspec.Struct):
    versions: dict[str, str] = {}  # of the small files, by path
    parts: dict[int, _Part] = {}  # by id


def renew(
    store: Store, job: str, number: int, patience: float = PATIENCE,
    now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep,
) -> str:  # fmt: skip
    """Have the machine of a live run put what is new into the store; return why it has not done so, "" if it has.

    Without a scheduler no message reaches the machine: there a run that no worker renews puts what is new
    with each renewal.  `patience`: seconds to wait.  Raises StoreError if the store cannot be read.
    """
    if store.read(orders.SCHEDULER) is None:
        return ""
    key = readable_files.index_key(job, number)
    before, until = store.read(key), now() + patience
    try:
        store.replace(orders.reader_key(job), b"")
    except StoreError as error:
        return f"its machine cannot be asked for what is new ({error})"
    while now() < until:
        sleep(POLL)
        if store.read(key) != before:
            return ""
    return "its machine was asked for what is new, and has not answered yet"


class _Gone(Exception):
    """A chunk that the index names was removed since."""


def bring(store: Store, job: str, number: int, *, lives: bool) -> RunDir | None:
    """Return the run of a job's holder as it is in the store; None if nothing of it is there.

    `lives`: the holder has the job.  Raises StoreError, OSError, and Damaged.
    """
    place = paths.home() / "fleet" / "mirror" / job / str(number)
    private.ensure(place)
    with private.locked(place / LOCK):
        for tried in range(1, TRIES + 1):
            data = store.read(readable_files.index_key(job, number))
            if data is None:
                return None
            index = readable_files.decode_index(data)
            run = RunDir(place / index.run)
            private.own(run.path)
            with contextlib.suppress(*([_Gone] if tried < TRIES else [])):
                _update(store, job, number, index, run)
                break
        marker = Elsewhere(1, job, number, index.host, index.at, lives)
        if run_files.elsewhere(run) != marker:
            run_files.write(run.path / run_files.ELSEWHERE, marker)
    return run


def _update(store: Store, job: str, number: int, index: Index, run: RunDir) -> None:
    kept = _recalled(run)
    try:
        for whole in index.files:
            if kept.versions.get(whole.path) != whole.version:
                _fetch(store, readable_files.file_key(job, number, whole.path), whole, run)
                kept.versions[whole.path] = whole.version
        for one in index.growing:
            before = kept.parts.get(one.id)
            if before is not None and before.path != one.path and (run.path / before.path).exists():
                (run.path / before.path).replace(run.path / one.path)
                before.path = one.path
        for one in index.growing:
            part = kept.parts.setdefault(one.id, _Part(one.path))
            _add(store, (job, number, index.host), one, part, run)
    finally:
        private.write(run.path / KEPT, jsontext.exact(kept))


def _recalled(run: RunDir) -> _KeptFiles:
    with contextlib.suppress(OSError, *UNREADABLE):
        return jsontext.decode((run.path / KEPT).read_bytes(), _KeptFiles)
    return _KeptFiles()


def _fetch(store: Store, key: str, whole: Whole, run: RunDir) -> None:
    target = run.path / whole.path
    draft = run.path / ".fetched"
    private.ensure(target.parent)
    draft.unlink(missing_ok=True)
    if not store.get(key, draft):
        raise Damaged(f"{whole.path} is not in the store")
    draft.chmod(private.FILE)
    draft.replace(target)


def _add(store: Store, whose: tuple[str, int, str], file: Growing, part: _Part, run: RunDir) -> None:
    """Add to the copy of a file what the store has more of it."""
    job, number, host = whose
    target = run.path / file.path
    if part.read and (not target.is_file() or target.stat().st_size != part.size):
        part.read = part.size = 0  # a copy that was interrupted
    if part.read == file.size:
        return
    if not part.read:
        target.unlink(missing_ok=True)
    with open(target, "ab", opener=private.opener) as copy:
        for chunk in readable_files.chunks(file, part.read):
            data = store.read(readable_files.part_key(job, number, file.id, chunk))
            begins = chunk * CHUNK
            if data is None:
                raise _Gone
            if begins > part.read:
                is_output = file.path.endswith(".log")
                copy.write(CUT.format(count=begins - part.read, host=host).encode() if is_output else b"\n")
            wanted = data[max(0, part.read - begins) : min(CHUNK, file.size - begins)]
            copy.write(wanted)
            part.read = max(begins, part.read) + len(wanted)
            copy.flush()
            part.size = copy.tell()
