"""Puts a job into the store.  That is all that it takes: a scheduler finds it there, now or later.

The code goes first, then the submission, which names it: a submission is complete from its first moment.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stallguard import units
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet import job_table, orders
from stallguard.fleet.orders import Code, Submission
from stallguard.fleet.signing import Signatures
from stallguard.fleet.store import Store, StoreError
from stallguard.pool.dispatch import SLOTS, offers

SCHEMA = 1
KNOWN = ("metal", "cuda", "mlx", "memory")  # what a job can need
TAKES = ("ready", "busy")  # states of a worker's card
GB = 1e9


class Submitted(msgspec.Struct, frozen=True):
    """What was put into the store.  `jobs`: the new ones; `present`: those that were there already."""

    schema: int
    fleet: str  # its name
    jobs: list[str]
    present: list[str]
    code: str  # SHA-256 of the packed project
    revision: str  # of git, "" if it is in none
    changed: bool  # whether files differ from that revision
    files: int  # that were packed
    size: int = msgspec.field(name="content_bytes")  # of their content
    left_out: list[str]  # files that are not sent because such files hold secrets
    notes: list[str]  # what a person should know: no machine fits yet, files differ from the last commit


class Wish(NamedTuple):
    """A job as it was asked for.  `options`: of `stallguard run`."""

    job: str
    words: tuple[str, ...]
    options: tuple[str, ...] = ()
    needs: Mapping[str, float] = {}
    priority: int = 0
    environment: Mapping[str, str] = {}
    sweep: str = ""
    engine: str = orders.DASK


def needs(texts: Sequence[str]) -> dict[str, float]:
    """Return amounts by resource for texts such as "metal", "cuda=2", "memory=32GB".  Raises StallguardError."""
    found: dict[str, float] = {}
    for text in (part.strip() for one in texts for part in one.split(",")):
        name, _, amount = text.partition("=")
        if name not in KNOWN:
            raise StallguardError(
                f"no machine can offer {name!r}", cure=f"what a job can need: {', '.join(KNOWN)}", code=USAGE
            )
        try:
            value = units.size(amount) / GB if name == "memory" else float(amount or 1)
        except ValueError as error:
            raise StallguardError(f"{text!r} is no amount", cure="--needs memory=32GB", code=USAGE) from error
        if not 0 < value < float("inf"):
            raise StallguardError(f"{text!r} is no amount", cure="--needs memory=32GB", code=USAGE)
        found[name] = value
    return found


def job_name(words: Sequence[str], now: dt.datetime) -> str:
    """Return a name for a job that was given none: that of its script, and the time."""
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0] if words else "job")
    if "-m" in words[:-1]:
        script = words[list(words).index("-m") + 1]
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", Path(script).stem).strip("-.")[:40] or "job"
    return f"{plain}-{now:%Y%m%d-%H%M%S}"


def put_code(store: Store, code: Code, archive: Path) -> None:
    """Put a packed project into the store unless it is there.  Raises StoreError."""
    if code.digest not in store.names("code"):
        store.put(orders.code_key(code.digest), archive)


def submit(store: Store, signatures: Signatures, wish: Wish, code: Code, by: str, at: str) -> bool:
    """Put a job into the store; return False if there is one of that name.  Raises StoreError, StallguardError."""
    if not orders.JOB_NAME.fullmatch(wish.job):
        why = "it is part of a path in the store: letters, digits, dots, dashes and underscores"
        raise StallguardError(f"{wish.job!r} cannot be the name of a job", why=why, code=USAGE)
    submission = Submission(
        schema=orders.SCHEMA, job=wish.job, words=wish.words, options=wish.options, code=code, needs=dict(wish.needs),
        priority=wish.priority, environment=dict(wish.environment), sweep=wish.sweep, engine=wish.engine, by=by, at=at,
    )  # fmt: skip
    data = orders.encode_submission(submission, signatures)
    is_new = store.create(orders.submission_key(wish.job), data)
    with contextlib.suppress(StoreError):  # without it the scheduler finds the job too, later
        store.replace(orders.news_key(wish.job), b"")
    return is_new


def exists(job: str) -> StallguardError:
    """Return the error for a name that is taken."""
    return StallguardError(
        f"there is a job {job} already",
        why="a job's name is its identity: what is published under it belongs to one training",
        cure=f"choose another name (--name), or see what it does: stallguard status {job}",
        code=CANNOT_RUN,
    )


def fitting(
    store: Store, signatures: Signatures, wanted: Mapping[str, float], now: dt.datetime
) -> tuple[list[str], str]:
    """Return the machines that take a job which needs `wanted`, now or after another; and why others do not.

    Raises StoreError.
    """
    cards = job_table.cards_of(store, store.names("workers"), signatures)
    workers = [job_table.as_seen(card, now) for card in cards]
    found = job_table.cordons_of(store, store.names("cordons"), signatures)
    cordons = [one for one in found if not one.is_lifted]
    out = {one.host for one in cordons}
    fit = [
        card.host
        for card in workers
        if card.state in TAKES and card.host not in out and offers(card.resources, {SLOTS: 1.0, **wanted})
    ]
    return fit, job_table.waits_for(wanted, (), workers, cordons)
