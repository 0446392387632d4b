"""What the store has of a run for people, as values: its index, and which part of a file is there.

    jobs/<job>/runs/<number>/index           Index: what is there; replaced after what it names was put
    jobs/<job>/runs/<number>/status          RunStatus: how a run stands that is in no card of a machine
    jobs/<job>/runs/<number>/files/<path>    a small file of the run, whole
    jobs/<job>/runs/<number>/parts/<id>/<n>  CHUNK bytes of a file that grows; the last one can be shorter

A file that grows keeps its id when it is renamed, so a journal of which a part is turned is not put again.  Of a large
file the beginning and the newest bytes are there: the beginning has the request, the end what happened last.

Must not read or write anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.orders import JOB_NAME, RunStatus
from stallguard.fleet.records import RUNS, Damaged, is_path

SCHEMA = 1
CHUNK = 1 << 18  # bytes: the last chunk of a file that grows is put again each time
MOST = {"journal": 64 << 20, "output": 32 << 20}  # bytes that the store has of each, in all their parts
SMALL = ("run.json", "outcome.json", "job.json", "notifications.json")
EVIDENCE = "incidents"
TEXTS = (".txt", ".json", ".stacks")  # of the evidence
TEXT_MAX, TEXTS_MAX, FILES_MAX = 1 << 20, 16 << 20, 500  # bytes of one, bytes of all, number of all
GROWING = (".jsonl", ".log", ".jsonl.gz", ".log.gz")


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
        if (
            not 0 <= one.cut <= one.goes_on <= one.size
            or one.cut % CHUNK
            or one.goes_on % CHUNK
            or one.id < 0
        ):
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
