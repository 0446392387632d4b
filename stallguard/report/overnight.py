"""The morning after: each run of the night in three lines, and one for each incident that has a name.

Pure: a summary in, lines out.  This module must not look anything up.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from stallguard.core.messages import duration, effective_time, lost_time
from stallguard.core.text import incidents, loss_words
from stallguard.core.time_spent import Spent

SCHEMA = 1


class NightIncident(msgspec.Struct, frozen=True):
    """An incident of a run, once for each name."""

    name: str  # the same for the same hang in each run
    count: int  # times in this run
    seen: str  # how often it had been seen by then in the kept runs, in words
    helped: str  # what helped against it in the kept runs, in words; empty: nothing, or not known
    known: str  # the public report that it looks like, in words; empty: none


class Night(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a run.  None or "": not known.  `state`: as outcome.state has it, or stopped on time."""

    run: str
    command: str
    state: str  # running, finished, stopped, gave up, failed, lost, ended (by request)
    seconds: float = 0.0
    ended: str = ""  # local time of day
    why: str = ""
    epoch: int | None = None
    epochs: int | None = None
    batches: int = 0
    loss: float | None = None
    first_loss: float | None = None
    loss_not_finite: str = ""  # nan, inf or -inf: the last loss, and `loss` is null
    broken_loss: str = ""  # since when the last loss is not finite, as a sentence
    stalls: int = 0
    crashes: int = 0
    restarts: int = 0
    lost: float = 0.0  # seconds that stalls, crashes and restarts cost
    effective: float | None = None  # share of the time that trained, 0..1; null: not known, or the run failed
    spent: Spent = Spent()  # where the time went
    causes: tuple[str, ...] = ()
    advice: str = ""
    continues: str = ""  # the run that it went on from
    continued_by: str = ""  # the run that went on from it
    resumable: bool = False  # it left a checkpoint
    job: str = ""  # the overnight job that it is the newest run of
    machine: str = ""  # of another machine of the fleet: its name
    fleet_job: str = ""  # the job of the fleet that it is a run of, if it is of another machine
    incidents: tuple[
        NightIncident, ...
    ] = ()  # those with a name, by the time when they were first seen in this run


class MissedStart(msgspec.Struct, frozen=True):
    """A start of a job that did not happen."""

    job: str
    at: dt.datetime  # local time with its offset
    words: str  # what happened and what to do


class OvernightOutput(msgspec.Struct, frozen=True):
    """Each run of the night, and the starts that it missed."""

    schema: int
    runs: list[Night]
    missed: list[MissedStart]
    missing: str | msgspec.UnsetType = msgspec.UNSET  # why the runs of the fleet's other machines are missing


STATES = {
    "finished": "finished{at} after {took}",
    "stopped": "stopped on time{at} after {took}",
    "gave up": "gave up{at} after {took}: {why}",
    "ended": "ended{at} after {took}: {why}",
    "failed": "failed{at} after {took}: {why}",
    "lost": "stallguard was ended{at} and did not come back",
    "running": "still running, for {took}",
}
TO_DO = {
    "finished": "nothing to do",
    "stopped": "{next}",
    "gave up": "see stallguard report {run}",
    "ended": "{next}",
    "failed": "see stallguard report {run}",
    "lost": "see stallguard logs {run}; {next}",
    "running": "stallguard status shows how it stands",
}
GOES_ON = "the job {job} resumes it from its checkpoint at the next start; by hand: --resume {run}"
BY_HAND = "it left a checkpoint: stallguard run --resume {run} with the same command goes on from it"
IN_FLEET = "stallguard status {fleet_job} says which machine goes on with the job"
ANEW = "it left no checkpoint: the next start begins from scratch"


def lines(night: Night) -> list[str]:
    """Return three lines: how it ended, how far it came, what was lost and what to do; then those of the incidents."""
    at = f" at {night.ended}" if night.ended else ""
    why = night.why or "the reason is not known"
    ending = STATES.get(night.state, "{state}").format(
        at=at, took=duration(night.seconds), why=why, state=night.state
    )
    where = f" on {night.machine}" if night.machine else ""
    before = f", going on from {night.continues}" if night.continues else ""
    reached = far(night.epoch, night.epochs, loss_words(night.loss, night.loss_not_finite), night.first_loss)
    batches = _count(night.batches, "batch", "batches") if night.batches else ""
    progress = ", ".join(part for part in (reached, batches) if part) or "no batch was seen"
    after = (GOES_ON if night.job else BY_HAND) if night.resumable else ANEW
    after = IN_FLEET if night.fleet_job else after
    follows = (
        f"it went on as {night.continued_by}"
        if night.continued_by
        else TO_DO.get(night.state, "").format(
            run=night.run, next=after.format(run=night.run, job=night.job, fleet_job=night.fleet_job)
        )
    )
    # A broken loss matters more than that the run finished.
    to_do = night.advice or ("" if night.broken_loss and night.state == "finished" else follows)
    found = incidents(night.stalls, night.crashes)
    losses = [found] if found else []
    if night.restarts:
        losses.append(_count(night.restarts, "restart", "restarts"))
    if losses and night.causes:
        losses[0] += f" ({', '.join(dict.fromkeys(night.causes))})"
    failed = night.state in ("failed", "gave up")
    time = lost_time(night.spent) if failed else effective_time(night.spent)
    return [
        f"{night.command}: {ending}  ({night.run}{where}{before})",
        f"  {progress}",
        "  " + "; ".join(filter(None, (night.broken_loss, ", ".join(losses) or "no stalls", time, to_do))),
        *(text for one in night.incidents for text in _incident(one)),
    ]


def _incident(one: NightIncident) -> list[str]:
    often = f" ({one.count} times)" if one.count > 1 else ""
    said = "; ".join(filter(None, (one.seen, one.helped)))
    return [f"  {one.name}{often}: {said}", *([f"    {one.known}"] if one.known else [])]


def far(epoch: int | None, epochs: int | None, loss: str, first_loss: float | None = None) -> str:
    """Return how far a training came, for the last notification too; "" if nothing of it is known.

    `loss`: in words, "" if it is not known.
    """
    parts = [] if epoch is None else [f"epoch {epoch}" + (f" of {epochs}" if epochs else "")]
    if loss:
        parts.append(f"loss {loss}" + ("" if first_loss is None else f" (from {loss_words(first_loss)})"))
    return ", ".join(parts)


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}".replace(",", " ")
