"""All jobs of a store: their states, who has them and why they wait; and the machines that work on them.

A table of values is made from what the store has (`row`, `waits_for`: pure), a few reads a job (`read`).  Whether a
holder is alive cannot be read, only watched (lease.py); the table says when the run's machine last wrote how it stands,
by that machine's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stallguard.fleet.jobs import readable_files
from stallguard.fleet.machines.machine_list import READERS, offered, records_of
from stallguard.fleet.store import LinkInStore, Store, each, entry, joblog, orders
from stallguard.fleet.store.joblog import Steps, Tail, perform
from stallguard.fleet.store.orders import JOB_NAME, Cordon, Refusal, RunStatus, Stop, Submission, WorkerCard
from stallguard.fleet.store.records import OF, Claim, Damaged, HolderEnd, Position
from stallguard.fleet.store.signing import Signatures

WAITING, RUNNING, FINISHED, FAILED, STOPPED, REFUSED = (
    "waiting", "running", "finished", "failed", "stopped", "refused",
)  # fmt: skip
ENDED = "ended"  # of a job that was started by hand: it goes on if it is started again
HOLDERS = 200  # of one job, whose times are read


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the store.  Empty or null: not known.  Times: RFC 3339, UTC, by the clock of the machine that wrote."""

    job: str  # its name
    # waiting, running, finished, failed, stopped, refused, ended (begun by hand; goes on if it is begun again)
    state: str
    machine: str = ""  # that has it, or had it last
    number: int = 0  # holders so far
    since: str = ""  # of the state
    run: str = ""  # id of the newest run that published
    newest: str = ""  # when the newest checkpoint was published
    position: Position | None = None  # of that checkpoint
    code: int | None = None  # exit code of the newest run that ended
    why: str = ""  # why it ended, waits or is refused
    is_submitted: bool = False  # by `stallguard fleet submit`; else by hand
    by: str = ""  # who submitted it
    submitted: str = ""  # when
    priority: int = 0  # higher ones first
    needs: dict[str, float] = {}  # amounts of resources by name
    sweep: str = ""  # the sweep that it is of
    command: list[str] = []
    heard: str = ""  # when its machine last wrote how it stands
    status: dict[str, Any] = {}  # how it stood then, as `stallguard status --json` has it


class Read(NamedTuple):
    """What the store has of one job.  `submission`, `stop`: as text why it is refused; `refusals`: of a job that waits.

    `damage`: what of its log cannot be read.
    """

    tail: Tail
    submission: Submission | str | None = None
    stop: Stop | str | None = None
    refusals: Sequence[Refusal] = ()
    status: RunStatus | None = None
    damage: str = ""


class Fleet(NamedTuple):
    """What the store has."""

    jobs: list[JobRow]
    workers: list[WorkerCard]
    cordons: list[Cordon]
    names: list[str]  # of all jobs


class Span(NamedTuple):
    """A holder of a job.  `until`: when it last published or ended, "" if it did neither; `end`: None: not known."""

    claim: Claim
    until: str
    end: HolderEnd | None


def row(job: str, found: Read, workers: Sequence[WorkerCard], cordons: Sequence[Cordon]) -> JobRow:
    """Return a job as it is shown."""
    tail, given = found.tail, found.submission
    claim, end, generation = tail.claim, tail.outcome, tail.generation
    state, why = _state(found)
    since = end.at if end else claim.at if claim else ""
    if isinstance(given, Submission):
        since = since or given.at
        if state == WAITING:
            refusals = _still_true(found.refusals, workers)
            because = waits_for(given.needs, refusals, workers, cordons)
            there = {card.host for card in workers if card.state != "gone"}
            is_everywhere = refusals and there <= {one.host for one in refusals}
            state, why = REFUSED if is_everywhere else WAITING, "; ".join(filter(None, (because, why)))
    if isinstance(found.stop, str):
        why = "; ".join(filter(None, (why, f"an order to stop it is refused: {found.stop}")))
    made = JobRow(
        job=job, state=state, machine=claim.holder.host if claim else "", number=tail.number, since=since,
        run=end.run if end else generation.run if generation else "", newest=generation.at if generation else "",
        position=generation.position if generation else None, code=end.code if end else None, why=why,
        heard=found.status.at if found.status else "", status=found.status.status if found.status else {},
    )  # fmt: skip
    if not isinstance(given, Submission):
        return made
    return msgspec.structs.replace(
        made, is_submitted=True, by=given.by, submitted=given.at, priority=given.priority, needs=given.needs,
        sweep=given.sweep, command=list(given.words),
    )  # fmt: skip


def _state(found: Read) -> tuple[str, str]:
    """Return the state of a job, and the reason, from its log and the orders for it."""
    tail, end = found.tail, found.tail.outcome
    stop = None if isinstance(found.stop, str) else found.stop
    if found.damage:
        return REFUSED, f"{found.damage}; put it back from a backup, or submit the job under another name"
    asked = f"stopped by {stop.by or 'a member'} (signed by {stop.signer})" if stop else ""
    if tail.claim is not None and end is None:
        return RUNNING, f"{asked}: it is being ended" if stop else ""
    if end is not None and end.is_finished:
        return FINISHED, end.why
    if stop is not None or (end is not None and end.final):
        return STOPPED, asked or (end.why if end else "")
    if isinstance(found.submission, str):
        return REFUSED, f"its submission is refused: {found.submission}"
    if end is None:
        return WAITING, "" if found.submission else "it was never begun"
    if not end.goes_on:
        return FAILED, end.why
    return (WAITING if found.submission else ENDED), f"its last run ended: {end.why}"


def _still_true(refusals: Sequence[Refusal], workers: Sequence[WorkerCard]) -> list[Refusal]:
    """Return the refusals of the workers that are there: a later one of the same machine is asked again."""
    of = {card.host: card.worker for card in workers}
    return [one for one in refusals if of.get(one.host, one.worker) in ("", one.worker)]


def waits_for(
    needs: Mapping[str, float], refusals: Sequence[Refusal], workers: Sequence[WorkerCard], cordons: Sequence[Cordon]
) -> str:
    """Return why a job waits, in words: what each machine lacks for it."""
    if not workers:
        return "no machine of the fleet has a worker; on each that trains: stallguard fleet worker"
    refused = {one.host: one.why for one in refusals}
    cordoned = {one.host: one.why for one in cordons if not one.is_lifted}
    reasons = []
    for card in workers:
        lacks = [
            f"{card.resources.get(name, 0.0):g} of {amount:g} {name}"
            for name, amount in sorted(needs.items())
            if card.resources.get(name, 0.0) < amount
        ]
        if card.host in refused:
            reasons.append(f"{card.host} refuses it ({refused[card.host]})")
        elif card.host in cordoned:
            reasons.append(f"{card.host} is cordoned ({cordoned[card.host]})")
        elif lacks:
            reasons.append(f"{card.host} has {', '.join(lacks)}")
        elif card.state == "busy" and card.jobs:
            reasons.append(f"{card.host} trains {', '.join(card.jobs)}")
        elif card.state != "ready":
            reasons.append(f"{card.host} is {card.state}" + (f" ({card.why})" if card.why else ""))
        else:
            reasons.append(f"{card.host} can take it as soon as it has room")
    return "; ".join(reasons)


def read(
    store: Store, signatures: Signatures | None, only: str = "", known: Mapping[str, JobRow] | None = None,
    these: Collection[str] | None = None,
) -> Fleet:  # fmt: skip
    """Return what the store has.  `signatures`: of this member, None for who is in no fleet; `only`: this job alone.

    `known`: rows that are not read again, by name; `these`: all names of jobs, if they are not to be listed.
    A submission that no member signed is listed as refused, a card is left out.  Raises StoreError.
    """
    names = store.names("jobs") if these is None else these
    there = [name for name in sorted(names) if JOB_NAME.fullmatch(name)]
    rows = {name: known[name] for name in there if name in known} if known else {}
    wanted = [name for name in there if only in ("", name) and name not in rows]
    workers, cordons = offered(store, signatures)
    found = each(lambda name: read_job(store, name, signatures, workers), wanted, READERS)
    rows |= {name: row(name, one, workers, cordons) for name, one in zip(wanted, found, strict=True)}
    return Fleet([rows[name] for name in sorted(rows) if only in ("", name)], workers, cordons, there)


def read_job(store: Store, job: str, signatures: Signatures | None, workers: Sequence[WorkerCard] = ()) -> Read:
    """Return what the store has of a job.  `workers`: the cards of the machines.  Raises StoreError."""
    tail, damage = Tail(), ""
    try:
        tail = perform(joblog.read_end(job), store)
    except (Damaged, LinkInStore) as error:
        damage = str(error)
    submission: Submission | str | None = None
    stop: Stop | str | None = None
    status, refusals = None, []
    data = entry(store, orders.Submission.place(job=job))
    if data is not None:
        try:
            submission = orders.decode_submission(data, signatures, job) if signatures else NO_FLEET
        except Damaged as error:
            submission = str(error)
    ordered = entry(store, orders.Stop.place(job=job)) if signatures else None
    if ordered is not None and signatures:
        try:
            stop = orders.decode_stop(ordered, signatures, job)
        except Damaged as error:
            stop = str(error)  # no machine follows it
    if tail.is_free and not damage:
        folder = orders.refusals_folder(job)
        try:
            hosts = store.names(folder)
        except LinkInStore as error:
            hosts, damage = [], str(error)
        refusals = records_of(
            store, folder, hosts, lambda data, host: orders.decode_refusal(data, job, host, signatures)
        )
    elif tail.claim is not None:
        status = status_of(store, job, tail.number, tail.claim.holder.host, workers)
    return Read(tail, submission, stop, refusals, status, damage)


def status_of(store: Store, job: str, number: int, host: str, workers: Sequence[WorkerCard]) -> RunStatus | None:
    """Return how the run of a holder stands, None if that is not known: the card of its machine has it, or a key.

    The run writes that key if no card stands for it.  `host`: of the holder; `workers`: as seen now (`as_seen`).
    Raises StoreError.
    """
    for card in workers:
        if card.host == host and card.state not in ("silent", "gone") and f"{job}{OF}{number}" in card.statuses:
            return card.statuses[f"{job}{OF}{number}"]
    said = entry(store, readable_files.status_key(job, number))
    try:
        return readable_files.decode_status(said) if said is not None else None
    except Damaged:
        return None


NO_FLEET = "this machine has no fleet file for this store, so its signature cannot be checked"


def history(job: str, tail: Tail, most: int = HOLDERS) -> Steps[list[Span]]:
    """Return the holders of a job, oldest first, at most the newest `most`: two reads each."""
    spans: list[Span] = []
    claim, slot, end = tail.claim, tail.claimed_at, tail.outcome
    until = end.at if end else tail.generation.at if tail.generation and tail.newest > slot else ""
    while claim is not None and len(spans) < most:
        spans.append(Span(claim, until, end))
        last = (yield from joblog.entry_at(job, slot - 1)) if slot > 1 else None
        claim, slot, end, until = (last, slot - 1, None, "") if isinstance(last, Claim) else (None, slot, None, "")
        if last is not None and not isinstance(last, Claim):
            before = yield from joblog.entry_at(job, last.claim)
            claim, slot = (before, last.claim) if isinstance(before, Claim) and last.claim < slot else (None, 0)
            end, until = (last if isinstance(last, HolderEnd) else None), last.at
    return spans[::-1]
