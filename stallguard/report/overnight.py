"""The morning after: each run of the night in three lines, and one for each incident that has a name.

`night` makes the summary of a run from its files, `lines` its words.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from stallguard.core.diagnosis.causes import title
from stallguard.core.messages import duration, effective_time, lost_time
from stallguard.core.text import count, far, loss_words
from stallguard.core.text import incidents as counted_incidents
from stallguard.core.time_spent import Spent
from stallguard.errors import STOPPED_ON_TIME
from stallguard.report import attempt_rows, incident_history, incidents, journal_record, summary
from stallguard.report.incident_history import Sighting
from stallguard.report.sanitize import one_line
from stallguard.report.summary import RunTotals
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

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
    state: str  # running, finished, stopped, gave up, failed, lost, ended (by request), watched
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
    incidents: tuple[NightIncident, ...] = ()  # those with a name, by the time when they were first seen in this run


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
    "watched": "watched for {took}: {why}",
    "failed": "failed{at} after {took}: {why}",
    "lost": "stallguard was ended{at} and did not come back",
    "running": "still running, for {took}",
}
WATCH = {"ended": "watched"}  # of a process that stallguard did not start: here "ended" is what a request ended
TO_DO = {
    "finished": "nothing to do",
    "stopped": "{next}",
    "gave up": "see stallguard report {run}",
    "ended": "{next}",
    "watched": "see stallguard report {run}",
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
    ending = STATES.get(night.state, "{state}").format(at=at, took=duration(night.seconds), why=why, state=night.state)
    where = f" on {night.machine}" if night.machine else ""
    before = f", going on from {night.continues}" if night.continues else ""
    reached = far(night.epoch, night.epochs, loss_words(night.loss, night.loss_not_finite), night.first_loss)
    batches = count(night.batches, "batch", "batches") if night.batches else ""
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
    found = counted_incidents(night.stalls, night.crashes)
    losses = [found] if found else []
    if night.restarts:
        losses.append(count(night.restarts, "restart", "restarts"))
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


BY_REQUEST = ("stopped", "interrupted")  # states by request, and at a set time
SUMS = frozenset(Night.__struct_fields__) & frozenset(RunTotals.__struct_fields__)  # that a night has of its run
NONE_KNOWN: Mapping[str, str] = MappingProxyType({})


def night(
    run: RunDir,
    zone: dt.tzinfo | None = None,
    continuations: Mapping[str, str] = NONE_KNOWN,
    jobs: Mapping[str, str] = NONE_KNOWN,
    sighted: Sequence[Sighting] = (),
) -> Night:
    """Return the summary of a run.

    `zone`: of the clock that is shown, None for the system's; `continuations`: from a run's id to that which went on
    from it; `jobs`: from a run's id to the overnight job that it is the newest run of;
    `sighted`: the incidents of all kept runs.
    """
    known = journal_record.read(run.journal)
    tries, troubles = attempt_rows.attempts(known), incidents.incidents(known)
    copied = run_files.elsewhere(run)
    asked, end, state = run_files.asked(run), run_files.outcome(run), run_files.state(run)
    sums = summary.totals(known, tries, troubles, end)
    advice = summary.advice(troubles, sums)
    ended = f"{dt.datetime.fromtimestamp(known.last, zone):%H:%M}" if known.last and state != "running" else ""
    causes = [title(one.findings[0].cause, phase=one.facts.get("phase", "")) for one in troubles if one.findings]
    return Night(
        run=run.id,
        command=one_line(" ".join(asked.command)) if asked else "?",
        state="ended" if state in BY_REQUEST and end and end.code != STOPPED_ON_TIME else WATCH.get(state, state),
        ended=ended,
        why=end.why if end else "",
        **{name: getattr(sums, name) for name in SUMS},
        causes=tuple(causes),
        advice=advice[0] if advice else "",
        continues=asked.continues if asked else "",
        continued_by=continuations.get(run.id, ""),
        resumable=run.has_checkpoints(),
        job=jobs.get(run.id, ""),
        machine=copied.host if copied else "",
        fleet_job=copied.job if copied else "",
        incidents=_incidents(run, sighted, zone),
    )


def _incidents(run: RunDir, sighted: Sequence[Sighting], zone: dt.tzinfo | None) -> tuple[NightIncident, ...]:
    """Return the incidents of a run that have a name, each once, as of the last time that it had them."""
    found: dict[str, list[Sighting]] = {}
    for one in sighted:
        if one.run == run.id and one.name:
            found.setdefault(one.name, []).append(one)
    shown = []
    for name, here in found.items():
        [summed] = incident_history.named([one for one in sighted if one.name == name], here[-1].at)
        shown.append(NightIncident(
            name, len(here), incident_history.seen_words(here[-1], sighted, zone),
            incident_history.remedy_words(summed.remedies),
            next(map(incident_history.known_words, summed.known), ""),
        ))  # fmt: skip
    return tuple(shown)


def continuations(runs: Iterable[RunDir]) -> dict[str, str]:
    """Return which run went on from which, by their ids: the newest where several did."""
    known = ((run_files.asked(run), run.id) for run in runs)
    return {asked.continues: continued_by for asked, continued_by in known if asked and asked.continues}
