"""What the members of a fleet write for each other into the store, beside the logs of the jobs (records.py).

    fleet                        FleetCard, exclusive: which fleet the store belongs to
    revoked                      which members are revoked, signed by the authority (signing.py)
    jobs/<job>/submission        Submission, exclusive: what is to be trained
    jobs/<job>/stop              Stop: the job is to end, and not to be continued
    jobs/<job>/refusals/<host>   Refusal: that machine cannot begin the job, and why
    code/<digest>                a packed project (tar, gzip), named by the SHA-256 of its bytes
    workers/<host>               WorkerCard: what a machine offers, renewed while its worker runs
    cordons/<host>               Cordon: that machine takes no job, until it is lifted
    scheduler                    SchedulerCard: where the engine's own page is
    news/<job>@<random>          empty: something was ordered for that job; the scheduler looks, and removes it
    news/<job>@reader            empty: a person reads its run; the scheduler has its machine publish what is new

All but the first two, and the code, are signed by a member (signing.py); cards and refusals of a machine by the member
to which it belongs.  Who is in no fleet can read them, and verify nothing.

Must not read or write anything.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, ClassVar, TypeVar

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.fleet.store import records
from stallguard.fleet.store.membership import owner
from stallguard.fleet.store.records import OF, Damaged
from stallguard.fleet.store.signing import NotSigned, Signatures, unverified

SCHEMA = 1
DASK, RAY = "dask", "ray"
FLEET_KEY = "fleet"
NEWS, STOP, REFUSALS = "news", "stop", "refusals"
SCHEDULER = "scheduler"  # the key of that card
SCHEDULER_WRITES = "scheduler-writes"  # the key by which a scheduler tries whether it can write
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")
S = TypeVar("S", bound="SignedRecord")


class _RecordSchema(msgspec.Struct, frozen=True):
    schema: int = SCHEMA


class SignedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a member signs.  KEY: where it is in the store, by the names of its fields."""

    KEY: ClassVar[str]
    schema: int

    @classmethod
    def place(cls, **names: str) -> str:
        """Return the key of the record with these names."""
        return cls.KEY.format(**names)

    @property
    def key(self) -> str:
        """Its own key."""
        return self.KEY.format(**msgspec.structs.asdict(self))


class FleetCard(msgspec.Struct, frozen=True, kw_only=True):
    """Which fleet a store belongs to: the name in the file of its members.

    `proof`: the digest of its authority's certificate.
    """

    schema: int
    fleet: str
    proof: str = ""


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A packed project.  `digest`: SHA-256 of the archive; `folder`: of the command, below the project's, "" for it.

    `revision`: of git, "" if it is in none; `changed`: whether files differ from that revision.
    """

    digest: str
    size: int
    folder: str = ""
    revision: str = ""
    changed: bool = False


class Wish(SignedRecord, frozen=True, kw_only=True):
    """A job as it was asked for.  `words`: COMMAND of `stallguard run`; `options`: its options, as words.

    `needs`: amounts of resources by name (metal, cuda, mlx, memory in GB); `environment`: variables to set;
    `sweep`: the name of the sweep that it is of; `engine`: who starts it: the fleet's scheduler, or a Ray cluster.
    """

    KEY: ClassVar[str] = "jobs/{job}/submission"
    schema: int = SCHEMA
    job: str
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    needs: dict[str, float] = {}
    priority: int = 0
    environment: dict[str, str] = {}
    sweep: str = ""
    engine: str = DASK


class Submission(Wish, frozen=True, kw_only=True):
    """A job."""

    code: Code
    by: str = ""  # user@host
    at: str = ""  # RFC 3339, UTC


class Stop(SignedRecord, frozen=True, kw_only=True):
    """An order to end a job for good.  `signer`: the member that signed it, known when it is read."""

    KEY: ClassVar[str] = f"jobs/{{job}}/{STOP}"
    job: str
    by: str = ""
    at: str = ""
    signer: str = ""


class Refusal(SignedRecord, frozen=True, kw_only=True):
    """Why a machine cannot begin a job.  `worker`: the random name of its worker: a later one is asked again."""

    KEY: ClassVar[str] = f"jobs/{{job}}/{REFUSALS}/{{host}}"
    job: str
    host: str
    worker: str
    at: str
    why: str


class RunStatus(msgspec.Struct, frozen=True):
    """How a live run stood.  `status`: as the control socket shows it (supervisor.live_status.LiveStatus)."""

    schema: int
    at: str  # RFC 3339, UTC, by the clock of the run's machine
    status: dict[str, Any]


class WorkerCard(SignedRecord, frozen=True, kw_only=True):
    """What a machine offers.  `at` changes every minute while its worker runs.

    `state`: ready, busy, closed (outside its hours, or without mains power), cordoned, gone; `why`: for people;
    `jobs`: what it trains now; `about`: host.system.facts(); `versions`: of packages by name; `home`: a random name of
    the directory in which one worker can work at a time, "" in cards of older versions; `clock`: seconds that its clock
    is ahead of the scheduler's, None if that is not known; `statuses`: how its runs stand, by the names of their
    renewals (records.beat_name).
    """

    KEY: ClassVar[str] = f"{records.CARDS}/{{host}}"
    host: str  # its name in the fleet
    at: str  # RFC 3339, UTC, of its own clock
    state: str
    worker: str = ""  # the random name of its worker, as in Refusal
    why: str = ""
    address: str = ""  # of its worker, for the scheduler
    resources: dict[str, float] = {}  # slots, memory in GB, metal, mlx, cuda
    jobs: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    about: dict[str, Any] = {}
    home: str = ""
    clock: float | None = None
    statuses: dict[str, RunStatus] = {}


class Cordon(SignedRecord, frozen=True, kw_only=True):
    """Why a machine takes no job.  `job`, `number`: of the holder that had the incident; "" and 0 if a person did it.

    `lifts_itself`: whether it ends when the machine's worker is there again: for a machine that had vanished.
    `is_lifted`: it is over; it is kept, so that the same incident does not cause another one.
    `signer`: the member that signed it, known when it is read.
    """

    KEY: ClassVar[str] = "cordons/{host}"
    host: str  # its name in the fleet
    at: str  # RFC 3339, UTC
    why: str
    job: str = ""
    number: int = 0
    lifts_itself: bool = False
    is_lifted: bool = False
    signer: str = ""


def host_name(nodename: str) -> str:
    """Return the name of a machine as a part of keys.  `nodename`: what the system calls it."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", nodename).lstrip("._-")[:100] or "unknown"


class SchedulerCard(SignedRecord, frozen=True, kw_only=True):
    """The scheduler that runs, or ran last.  `dashboard`: address of its own page, "" if it has none."""

    KEY: ClassVar[str] = SCHEDULER
    host: str
    at: str
    address: str = ""
    dashboard: str = ""
    versions: dict[str, str] = {}  # of what scheduler and workers must agree on, by package


def news_key(job: str) -> str:
    """Return a new key by which a scheduler learns that something was ordered for a job.

    Nothing is believed of it: the scheduler reads what is signed.  Without it that is read later.
    """
    return f"{NEWS}/{job}{OF}{os.urandom(6).hex()}"


def reader_key(job: str) -> str:
    """Return the key by which a scheduler learns that a person reads what is in the store of a job's run."""
    return f"{NEWS}/{job}{OF}reader"


def refusals_folder(job: str) -> str:
    """Return the folder of the machines that cannot begin a job."""
    return f"jobs/{job}/{REFUSALS}"


def code_key(digest: str) -> str:
    """Return the key of a packed project."""
    return f"code/{digest}"


def encode(value: SignedRecord, signatures: Signatures) -> bytes:
    """Return a record as it is stored: JSON of ASCII alone, so that no encoding of text changes what is signed."""
    text = json.dumps(msgspec.to_builtins(value), separators=(",", ":"))
    return signatures.sign(value.key, text.encode("ascii"))


def decode_submission(data: bytes, signatures: Signatures, job: str) -> Submission:
    """Return the submission of `job`.  Raises Damaged."""
    found, _ = _opened(Submission, Submission.place(job=job), data, signatures, "submitted")
    if not found.words or not _DIGEST.fullmatch(found.code.digest):
        raise Damaged("it has no command, or names no code")
    return found


def decode_stop(data: bytes, signatures: Signatures, job: str) -> Stop:
    """Return the order to end `job`.  Raises Damaged."""
    found, by = _opened(Stop, Stop.place(job=job), data, signatures)
    return msgspec.structs.replace(found, signer=by)


def decode_cordon(data: bytes, host: str, signatures: Signatures | None) -> Cordon:
    """Return the cordon of a machine; one that cannot be verified or read keeps it out until a person replaces it.

    So a cordon that was damaged, or whose lifting no member signed, is a safe stop.
    """
    try:
        found, by = _opened(Cordon, Cordon.place(host=host), data, signatures)
        return msgspec.structs.replace(found, signer=by)
    except Damaged as error:
        why = f"its cordon cannot be used ({error}); stallguard fleet uncordon {host} removes it"
        return Cordon(schema=SCHEMA, host=host, at="", why=why)


def decode_card(data: bytes, host: str, signatures: Signatures | None) -> WorkerCard:
    """Return the card of a machine.  Raises Damaged, NotSigned if the machine's member did not sign it."""
    return _of_host(WorkerCard, WorkerCard.place(host=host), data, host, signatures)


def decode_refusal(data: bytes, job: str, host: str, signatures: Signatures | None) -> Refusal:
    """Return why a machine cannot begin a job.  Raises as `decode_card`."""
    return _of_host(Refusal, Refusal.place(job=job, host=host), data, host, signatures)


def decode_scheduler(data: bytes, signatures: Signatures | None) -> SchedulerCard:
    """Return the card of the scheduler.  Raises Damaged."""
    return _opened(SchedulerCard, SCHEDULER, data, signatures)[0]


def _of_host(kind: type[S], key: str, data: bytes, host: str, signatures: Signatures | None) -> S:
    found, by = _opened(kind, key, data, signatures)
    if signatures and by != owner(host):
        raise NotSigned(f"{by} signed it, to which {host} does not belong")
    return found


def _opened(kind: type[S], key: str, data: bytes, signatures: Signatures | None, did: str = "wrote") -> tuple[S, str]:
    """Return a record and who signed it, "" if that cannot be verified here.  Raises Damaged."""
    content, by = signatures.verified(key, data) if signatures else (unverified(data), "")
    found = decode(content, kind, did)
    if found.key != key:
        raise Damaged(f"it is {found.key}, copied to this name")
    return found, by


def decode(data: bytes, kind: type[T], did: str = "wrote") -> T:
    """Return a record without its signature.  `did`: what its author did with it.  Raises Damaged."""
    try:
        schema = jsontext.decode(data, _RecordSchema).schema
        if schema > SCHEMA:  # before the rest: it can be of other types
            raise Damaged(
                f"a newer stallguard {did} it (schema {schema}, this one reads {SCHEMA}): update stallguard here"
            )
        return jsontext.decode(data, kind)
    except UNREADABLE as error:
        raise Damaged(str(error)) from error
