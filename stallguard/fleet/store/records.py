"""What the store has of a job, as values: the entries of its log, and the card of a machine.

    machines/<host>.json         Machine
    jobs/<job>/log/<slot>        Entry, exclusive; slots are numbers from 1 on, without gaps
    beats/<job>@<number>         changes while the holder of the lease with that number renews it: in one folder for
                                 all jobs, so that one listing shows a scheduler who lives
    beats/<job>@<number>@<host>  while it is there, the card of that machine (workers/<host>) renews that lease too
    jobs/<job>/data/<number>/<name>      files of generations that this holder published
    jobs/<job>/runs/<number>/    what is readable of its run (readable_files.py)

Must not read or write anything.
"""

from __future__ import annotations

import datetime as dt
import re
import signal
from typing import Any, NamedTuple

import msgspec

from stallguard import jsontext
from stallguard.errors import CANNOT_RUN, NOT_FOUND, OWN_FAILURE, SIGNALLED, STOPPED_ON_TIME, UNREADABLE

SCHEMA = 1
# The paths of files that are no checkpoints: what W&B, MLflow and TensorBoard go on with.
TRACKERS = "trackers/"
CARDS = "workers"
LOG, BEATS, DATA, RUNS = "log", "beats", "data", "runs"
LONGEST_LEASE = 86400.0  # s
# Ends of `stallguard run` itself, before or beside the script: another machine can do better.
OWN_ENDS = frozenset((OWN_FAILURE, CANNOT_RUN, NOT_FOUND))
REQUESTED, NOT_BEGUN, KILLED = "requested", "not begun", "killed"  # reasons of a HolderEnd
# Ends that were asked for on its machine, after a checkpoint.
ASKED_FOR = frozenset((STOPPED_ON_TIME, *(SIGNALLED + one for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))))
OF = "@"  # between a job and what is of it
DIGITS = 8  # of a slot's name, so that names sort; longer numbers are right all the same
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of the path of a file: never "..", never empty
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Damaged(ValueError):
    """An entry that no stallguard writes; the text gives the reason."""


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lease.

    `nonce`: random, so that no two claims are equal; `lasts`: seconds of its lease; `about`: of host.system.facts().
    """

    host: str
    boot: str
    pid: int
    nonce: str
    lasts: float = 60.0  # of claims that do not say it
    about: dict[str, Any] = {}


class StoredFile(msgspec.Struct, frozen=True):
    """One file of a generation.

    `path`: below the run's checkpoints, or TRACKERS and below those; `digest`: SHA-256 of its content; `name`: of its
    content in the store, never used for another upload.
    """

    path: str
    size: int
    digest: str
    name: str


class Position(msgspec.Struct, frozen=True, order=True):
    """How far a training has come: `fit`: its number, `epoch`: of that fit, `batch`: the batches of that epoch."""

    fit: int
    epoch: int
    batch: int


class _Slot(msgspec.Struct, frozen=True, kw_only=True, tag_field="entry"):
    """Base of all entries.  `newest`: the slot of the newest generation before this one; 0: none."""

    number: int  # the fencing number of the holder that wrote it
    newest: int = 0
    at: str = ""  # RFC 3339, UTC: for people alone


class Claim(_Slot, frozen=True, kw_only=True, tag="claim"):
    """From here on the lease belongs to `holder`, under a number that is one higher than the last."""

    holder: Holder


class Generation(_Slot, frozen=True, kw_only=True, tag="generation"):
    """A state of the training, complete: all files of its checkpoints.  `claim`: the slot of its holder's claim.

    `signed`: what generations.py signs, by a member of a fleet; "" by who is in none.
    """

    claim: int
    run: str
    files: tuple[StoredFile, ...]
    position: Position | None = None  # None: not known, as for a script's own loop
    signed: str = ""


class HolderEnd(_Slot, frozen=True, kw_only=True, tag="outcome"):
    """The holder's run is over, and the lease free.  `code`: its exit code; after 0 the job is not done again.

    `script_code`: the exit code with which the script ended by itself; None: it was ended, or never began.
    `reason`: the kind of an end that is not the script's: REQUESTED, NOT_BEGUN, KILLED (stallguard itself was), "" for
    all others.
    `fault`: why the machine, not the training, is the reason for the end; "" if it is not: core.policy.
    `final`: it is not done again either, because a person stopped the job.
    """

    claim: int
    run: str
    code: int
    why: str
    fault: str = ""
    final: bool = False
    script_code: int | None = None
    reason: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether the training came to its end.  A script that is asked to end can do that with 0."""
        return not self.code and self.reason != REQUESTED

    @property
    def is_last(self) -> bool:
        """Whether no machine continues the job."""
        return self.final or self.is_finished

    @property
    def goes_on(self) -> bool:
        """Whether a job of a fleet is started again after it: the script itself did not fail."""
        if self.is_last or self.fault:
            return not self.is_last
        if self.script_code is not None:
            return False
        return bool(self.reason) or self.code in ASKED_FOR | OWN_ENDS

    @property
    def could_not_begin(self) -> bool:
        """Whether its machine could not train the job, and another one can be asked."""
        return self.script_code is None and (self.reason == NOT_BEGUN or (not self.reason and self.code in OWN_ENDS))


Entry = Claim | Generation | HolderEnd


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that has run a job, as it was then."""

    schema: int
    host: str
    boot: str
    at: str
    version: str  # of stallguard
    about: dict[str, Any]  # host.system.facts()


def time_of(text: str) -> dt.datetime | None:
    """Return a time of the store; None if it is none, or has no zone."""
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def is_path(text: str) -> bool:
    """Return whether a text is the path of a file below a folder, with plain names: never "..", never empty."""
    return all(_PART.fullmatch(part) for part in text.split("/"))


def decode(data: bytes) -> Entry:
    """Return the entry in `data`.  Raises Damaged."""
    try:
        entry: Entry = jsontext.decode(data, Entry)  # type: ignore[arg-type]  # a union is no class
    except (*UNREADABLE, msgspec.ValidationError) as error:
        raise Damaged(str(error)) from error
    if isinstance(entry, Claim):
        if not 1 <= entry.holder.lasts <= LONGEST_LEASE:
            raise Damaged(f"a lease of {entry.holder.lasts} s")
        if not _PART.fullmatch(entry.holder.host):  # it becomes a part of keys: that of a cordon
            raise Damaged(f"{entry.holder.host!r} is not the name of a machine")
    elif entry.run and not _PART.fullmatch(entry.run):
        raise Damaged(f"{entry.run!r} is not the id of a run")
    if isinstance(entry, Generation):
        for file in entry.files:
            if not is_path(file.path):
                raise Damaged(f"{file.path!r} is not a path below a run's checkpoints")
            if not _DIGEST.fullmatch(file.digest) or not _PART.fullmatch(file.name) or file.size < 0:
                raise Damaged(f"the digest or the name of {file.path} is not one")
    return entry


def encode(entry: Entry) -> bytes:
    """Return an entry as `decode` reads it: equal entries are equal bytes."""
    return jsontext.exact(entry)


def slot_key(job: str, slot: int) -> str:
    """Return the key of a slot of a job's log."""
    return f"jobs/{job}/{LOG}/{slot:0{DIGITS}}"


def beat_key(job: str, claim: Claim) -> str:
    """Return the key that the holder with that claim renews."""
    return f"{BEATS}/{beat_name(job, claim.number)}"


def beat_name(job: str, number: int) -> str:
    """Return its name in the folder of all beats.  No name of a job has the sign."""
    return f"{job}{OF}{number}"


def mark_key(name: str, host: str) -> str:
    """Return the key that says that the card of a machine stands for a holder.  `name`: from `beat_name`."""
    return f"{BEATS}/{name}{OF}{host}"


class Beat(NamedTuple):
    """A name in the folder of all beats.  `host`: the machine whose card stands for the holder, "" for its own key."""

    job: str
    number: int
    host: str


def job_of(name: str) -> str:
    """Return the job of a name in the folder of all beats."""
    return name.partition(OF)[0]


def beat_of(name: str) -> Beat | None:
    """Return what a name in the folder of all beats means; None for one that no stallguard writes."""
    job, _, rest = name.partition(OF)
    number, _, host = rest.partition(OF)
    return Beat(job, int(number), host) if job and number.isdecimal() else None


def data_folder(job: str, number: int) -> str:
    """Return the folder of the files that the holder with that number published."""
    return f"jobs/{job}/{DATA}/{number}"


def data_key(job: str, number: int, name: str) -> str:
    """Return the key of a file's content."""
    return f"{data_folder(job, number)}/{name}"
