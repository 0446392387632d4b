"""How a holder publishes a generation: its files first, then its entry, then the files that are needed no more go.

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
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec.structs import replace

from stallguard import jsontext
from stallguard.fleet import joblog, records
from stallguard.fleet.joblog import Steps, StoreRequest, Tail
from stallguard.fleet.records import Generation, Outcome, Position, StoredFile
from stallguard.fleet.signing import NotSigned, Signatures

KEPT = 2
_UPLOAD = re.compile(
    r"[1-9][0-9]*-[0-9a-f]{16}"
)  # names of what `publish` puts: nothing else is removed by its name


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
        """Publish how the run ended, and free the lease.  `facts`: of Outcome.  Raises Fenced, and StoreError."""
        entry = Outcome(number=self._number, at=at, claim=0, run=run, code=code, why=why, **facts)
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
