"""The log of a job: the one order of all claims, generations and outcomes, made of exclusive creations alone.

**The promise.**  No progress is published twice, and nothing is accepted of a holder after a later claim.

**Why it holds.**  An entry is put at the slot after the last one that its writer has read.  A slot is created
exclusively, so all machines see one order of entries, and who is second at a slot reads what is there before it tries
the next.  Let a holder have number 3, freeze, and another claim number 4 at slot s.  The old one does not know s.  If
its entry arrives at s first, the claim fails at s, its writer reads that entry, and claims at s + 1: nothing is lost.
If it arrives later, it fails at s, its writer reads the claim, and is fenced.  It never tries s + 1 after such a claim.
No clock is part of this argument, and a creation that a network delays for an hour changes nothing: it is put at s, or
it is refused.

That is all that a plain file system or a bucket can do: they have no transaction over two files, so a lock in one file
cannot protect another.  Therefore claims and generations are in one sequence.

**What follows from it.**  Entries are never removed: a slot that is free again would accept an old writer.  They take
0.3 kB and a line for each file.  The files of a generation are put before its entry, under the number of their holder:
an old holder writes into its own folder only, which no later generation uses.

**Second line.**  `follow` refuses an entry whose number is not that of the claim before it, or a claim whose number is
not higher.  No stallguard writes such an entry; a store without exclusive creations would let it through, and
`stallguard doctor --store` finds such a store.

The steps are generators of requests, without a store and a clock: `perform` does them with a real store, and
tests/fleet/ does them in random order, with each request delayed, lost or repeated.
"""

from __future__ import annotations

from collections.abc import Generator
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import msgspec

from stallguard.fleet.store import Store, StoreError, records
from stallguard.fleet.store.records import Claim, Damaged, Entry, Generation, Holder, HolderEnd

T = TypeVar("T")


class StoreRequest(NamedTuple):
    """A request to the store.  `do`: the name of a method of store.Store."""

    do: str
    key: str
    data: Any = None


Steps = Generator[StoreRequest, Any, T]


class Fenced(Exception):
    """A later holder has the lease; `by` is its claim."""

    def __init__(self, by: Claim) -> None:
        super().__init__(f"the lease was taken by {by.holder.host} (pid {by.holder.pid}), number {by.number}")
        self.by = by


class Tail(NamedTuple):
    """The end of a log, as far as it was read.  Slots are 0 if there is none."""

    slot: int = 0
    claim: Claim | None = None
    claimed_at: int = 0
    generation: Generation | None = None  # the newest that is accepted
    newest: int = 0  # its slot
    outcome: HolderEnd | None = None  # of that claim
    refused: int = 0  # entries that were not accepted

    @property
    def number(self) -> int:
        """The number of the newest claim."""
        return self.claim.number if self.claim else 0

    @property
    def is_free(self) -> bool:
        """Whether there is no holder."""
        return self.claim is None or self.outcome is not None


def follow(tail: Tail, slot: int, entry: Entry | None) -> Tail:
    """Return the tail after the entry of the next slot; None: one that no stallguard writes."""
    tail = tail._replace(slot=slot)
    if isinstance(entry, Claim) and entry.number > tail.number:
        return tail._replace(claim=entry, claimed_at=slot, outcome=None)
    if entry is None or isinstance(entry, Claim) or entry.number != tail.number or tail.outcome is not None:
        return tail._replace(refused=tail.refused + 1)
    if isinstance(entry, Generation):
        return tail._replace(generation=entry, newest=slot)
    return tail._replace(outcome=entry)


def is_further(entry: Generation, before: Generation | None) -> bool:
    """Return whether a generation is beyond the newest published one: no progress is published twice.

    If the position of either is not known, other content counts as further.
    """
    if before is None:
        return True
    if entry.position is None or before.position is None:
        return _checkpoints(entry) != _checkpoints(before)
    return entry.position > before.position


def _checkpoints(entry: Generation) -> set[tuple[str, str]]:
    return {(file.path, file.digest) for file in entry.files if not file.path.startswith(records.TRACKERS)}


def read_end(job: str) -> Steps[Tail]:
    """Return the end of the log.  Its last entry names the two before it that matter, so that four reads are enough.

    Raises Damaged if one of these two cannot be read: without it the job would start over, or its holder be overlooked.
    """
    names = yield StoreRequest("names", f"jobs/{job}/{records.LOG}")
    slots = [int(name) for name in names if name.isdecimal()]
    last = max(slots, default=0)
    tail = Tail()
    while last:  # from the newest that can be read: what follows is read by `catch_up`
        entry = yield from entry_at(job, last)
        if entry is not None:
            tail = yield from _as_of(job, last, entry)
            break
        last -= 1
    return (yield from catch_up(job, tail))


def _as_of(job: str, slot: int, entry: Entry) -> Steps[Tail]:
    """Return the tail at an entry, from those that it names."""
    tail = Tail()
    if entry.newest:
        generation = yield from entry_at(job, entry.newest)
        if not isinstance(generation, Generation):
            raise Damaged(f"slot {entry.newest} of its log, its newest checkpoint, cannot be read")
        tail = tail._replace(generation=generation, newest=entry.newest)
    if not isinstance(entry, Claim):
        claim = yield from entry_at(job, entry.claim)
        if not isinstance(claim, Claim):
            raise Damaged(f"slot {entry.claim} of its log, its newest holder, cannot be read")
        tail = tail._replace(claim=claim, claimed_at=entry.claim)
    return follow(tail, slot, entry)


def catch_up(job: str, tail: Tail) -> Steps[Tail]:
    """Return the tail after what was added since."""
    while True:
        data = yield StoreRequest("read", records.slot_key(job, tail.slot + 1))
        if data is None:
            return tail
        tail = follow(tail, tail.slot + 1, _decoded(data))


def claim(job: str, tail: Tail, holder: Holder, at: str) -> Steps[tuple[Tail, bool]]:
    """Claim the lease as it was read; return the new tail, and whether `holder` has the lease.

    False: another entry came first.  The caller reads anew, because a holder that publishes is alive.
    """
    entry = Claim(number=tail.number + 1, newest=tail.newest, at=at, holder=holder)
    slot = tail.slot + 1
    won = yield StoreRequest("create", records.slot_key(job, slot), records.encode(entry))
    if won:
        return follow(tail, slot, entry), True
    return (yield from catch_up(job, tail)), False


def append(job: str, tail: Tail, number: int, entry: Generation | HolderEnd) -> Steps[Tail]:
    """Publish an entry of the holder `number`; return the tail after it.  Raises Fenced, and StoreError.

    After a StoreError the entry can be there, or come later.  So it is decided here, from what is really before it,
    whether a generation is further, and what it says of the entries before it.  One that is not further, and an outcome
    that is there, is not published again.
    """
    tail = yield from catch_up(job, tail)
    while True:
        if tail.number != number:
            assert tail.claim is not None  # noqa: S101 - the holder's own is there
            raise Fenced(tail.claim)
        if not is_further(entry, tail.generation) if isinstance(entry, Generation) else tail.outcome:
            return tail
        slot = tail.slot + 1
        entry = msgspec.structs.replace(entry, newest=tail.newest, claim=tail.claimed_at)
        won = yield StoreRequest("create", records.slot_key(job, slot), records.encode(entry))
        if won:
            return follow(tail, slot, entry)
        before = tail.slot
        tail = yield from catch_up(job, tail)
        if tail.slot == before:
            raise StoreError(f"slot {slot} of {job} exists and cannot be read")


def renew(job: str, claim: Claim, beat: int) -> Steps[None]:
    """Renew the lease of a claim.  Raises StoreError.  `beat`: another each time."""
    yield StoreRequest("replace", records.beat_key(job, claim), b"%d" % beat)


def still_held(job: str, tail: Tail, number: int) -> Steps[Tail]:
    """Return the log's end.  Raises Fenced if the holder `number` has been replaced, and StoreError."""
    tail = yield from catch_up(job, tail)
    if tail.claim is not None and tail.number != number:
        raise Fenced(tail.claim)
    return tail


def look(job: str, tail: Tail) -> Steps[tuple[Tail, str]]:
    """Return the log's end, and all that its holder and its machine change, as a text for lease.watched."""
    tail = yield from catch_up(job, tail)
    if tail.claim is None:
        return tail, f"{tail.slot} "
    beat = yield StoreRequest("read", records.beat_key(job, tail.claim))
    host, card = tail.claim.holder.host, None
    if (yield StoreRequest("read", records.mark_key(records.beat_name(job, tail.claim.number), host))) is not None:
        card = yield StoreRequest("read", f"{records.CARDS}/{host}")
    seen = f" {sha256(card).hexdigest()[:16]}" if card is not None else ""
    return tail, f"{tail.slot} {(beat or b'').decode('ascii', 'replace')}{seen}"


def entry_at(job: str, slot: int) -> Steps[Entry | None]:
    """Return the entry of a slot; None if there is none, or one that no stallguard writes."""
    data = yield StoreRequest("read", records.slot_key(job, slot))
    return None if data is None else _decoded(data)


def _decoded(data: bytes) -> Entry | None:
    try:
        return records.decode(data)
    except Damaged:
        return None


def perform(steps: Steps[T], store: Store) -> T:
    """Do the steps with a real store; return what they return.  Raises what they raise, and StoreError."""
    answer: Any = None
    error: StoreError | None = None
    while True:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        answer, error = None, None
        given = () if request.data is None else (request.data,)
        try:
            answer = getattr(store, request.do)(request.key, *given)
        except StoreError as failure:
            error = failure
