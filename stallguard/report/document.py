"""The whole report as one value: what the terminal, the HTML and the JSON show, without secrets.

Gathers from the run's directory; what is missing or damaged there leaves a hole in the report, never an error.
Must not lay anything out.
"""

from __future__ import annotations

import datetime as dt
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from stallguard.collectors.redact import Redactor
from stallguard.core import messages
from stallguard.core.actions import Announce
from stallguard.core.diagnosis import causes
from stallguard.core.events import ProbeConnected
from stallguard.core.verdicts import Finding
from stallguard.report import (
    attempt_rows,
    evidence_files,
    incidents,
    journal_record,
    programs,
    summary,
    timeline,
    totals,
)
from stallguard.report.attempt_rows import AttemptRow
from stallguard.report.evidence_files import IncidentEvidence
from stallguard.report.incidents import Incident
from stallguard.report.journal_record import Record
from stallguard.report.narrative import prose, sentence
from stallguard.report.programs import TrainingRow
from stallguard.report.sanitize import plain
from stallguard.report.timeline import Timeline
from stallguard.report.totals import RunTotals
from stallguard.report.wall_time import clock
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

SCHEMA = 1
TOLD_MAX = 2000  # sentences
SAID = ("stalled", "crashed", "diagnosis", "also", "advice")  # what the rest of an incident says already


class StoryLine(msgspec.Struct, frozen=True):
    """A sentence of the log.  `at`: seconds since the epoch; `clock`: the same as the user reads it."""

    at: float
    clock: str
    text: str


class CauseText(msgspec.Struct, frozen=True):
    """A cause that fits, with the sentences for and against it.  `confidence`: 0..1, and as a word."""

    title: str
    confidence: float
    word: str
    evidence: tuple[str, ...]
    against: tuple[str, ...]
    mode: str = ""


class IncidentText(msgspec.Struct, frozen=True, omit_defaults=True):
    """An incident as it is shown.  `same_as`: number of an earlier one that hung in exactly the same stacks."""

    number: int
    kind: str
    clock: str
    began: float
    seconds: float
    attempt: int
    outcome: str
    headline: str
    causes: list[CauseText]
    announced: list[StoryLine]
    where: str = ""
    same_as: int = 0
    why: str = ""
    mathematics: str = ""
    evidence: IncidentEvidence | None = None


class Document(msgspec.Struct, frozen=True):
    """A report.  Times: seconds since the epoch; `offset`: seconds to add for the user's own clock."""

    schema: int
    run: str
    state: str
    command: list[str]
    cwd: str
    began: str
    zone: str
    story: list[str]
    totals: RunTotals
    attempts: list[AttemptRow]
    trainings: list[TrainingRow]  # if there were several
    incidents: list[IncidentText]
    advice: list[str]
    beyond: list[str]
    announced: list[StoryLine]
    output: list[str]
    versions: dict[str, str]
    removed: dict[str, int]
    timeline: Timeline


def make(run: RunDir, environment: Mapping[str, str], zone: dt.tzinfo | None = None) -> Document:
    """Return the report of a run.

    `environment`: whose secrets are removed too; `zone`: of the clock that is shown, None for the system's.
    """
    with _unswept():
        return _made(run, environment, zone)


@contextmanager
def _unswept() -> Iterator[None]:
    """Do without the search for cycles: a night is a hundred thousand values, all of them needed to the end."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _made(run: RunDir, environment: Mapping[str, str], zone: dt.tzinfo | None) -> Document:
    asked = run_files.asked(run)
    known = journal_record.read(run.journal)
    started = programs.programs(known)
    tries = attempt_rows.attempts(known, started)
    trained = programs.trainings(started)
    troubles = incidents.incidents(known)
    shown = clock(known.first, known.last, zone)
    sums = totals.totals(known, tries, troubles, run_files.outcome(run))
    cwd = asked.cwd if asked else ""
    here = dt.datetime.fromtimestamp(known.first, zone).astimezone(zone)
    offset = (here.utcoffset() or dt.timedelta()).total_seconds()
    document = Document(
        schema=SCHEMA,
        run=run.id,
        state=run_files.state(run),
        command=asked.command if asked else [],
        cwd=cwd,
        began=f"{here:%A, %d %B %Y, %H:%M}" if known.first else "",
        zone=here.tzname() or "",
        story=summary.story(
            run_files.state(run),
            _end(run) | _mathematics(known),
            sums,
            tries,
            troubles,
            shown,
            trained,
            _inexact(known, troubles),
        ),
        totals=sums,
        attempts=tries,
        trainings=trained,
        incidents=_troubles(run, troubles, shown, cwd),
        advice=summary.advice(troubles),
        beyond=[line.facts.get("text", "") for line in _announcements(known) if line.kind == "beyond"],
        announced=_lines(known, shown),
        output=evidence_files.last_lines(run.output),
        versions=_versions(known),
        removed={},
        timeline=timeline.timeline(known, tries, troubles, offset),
    )
    return _clean(document, Redactor(environment, asked.argv if asked else (), str(Path.home())))


def _clean(document: Document, redactor: Redactor) -> Document:
    """Return the report without secrets and without characters that do something; numbers stay as they are."""
    bare = msgspec.structs.replace(document, timeline=Timeline(0.0, 0.0, 0.0, [], [], [], [], []))
    clean = _shown(redactor.value(msgspec.to_builtins(bare)))
    removed = {rule: number for rule, number in redactor.removed.items() if number}
    whole = msgspec.convert(clean, Document)
    return msgspec.structs.replace(whole, timeline=document.timeline, removed=removed)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain(key): _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


def _end(run: RunDir) -> dict[str, str]:
    end = run_files.outcome(run)
    return {"code": str(end.code), "why": end.why} if end else {}


def _mathematics(known: Record) -> dict[str, str]:
    """Return what the run, at last, said that it changed in the training."""
    said = [one.facts.get("text", "") for one in _announcements(known) if one.kind == "mathematics"]
    return {"mathematics": said[-1]} if said else {}


def _inexact(known: Record, troubles: Sequence[Incident]) -> list[str]:
    """Return what is not exact, each sentence once, unless an incident has it: a segment or a resume needs none."""
    among = {
        announced.facts.get("text")
        for one in troubles
        for announced in one.announced
        if announced.kind == "inexact"
    }
    said = [one.facts.get("text", "") for one in _announcements(known) if one.kind == "inexact"]
    return [text for text in dict.fromkeys(said) if text not in among]


def _announcements(known: Record) -> list[Announce]:
    return [what for _, what in known.happened if isinstance(what, Announce)]


def _lines(known: Record, clock: Callable[[float], str]) -> list[StoryLine]:
    announcements = [(at, what) for at, what in known.happened if isinstance(what, Announce)]
    return [
        StoryLine(at, clock(at), prose(sentence(what.kind, what.facts)))
        for at, what in announcements[-TOLD_MAX:]
    ]


def _versions(known: Record) -> dict[str, str]:
    found: dict[str, str] = {}
    for _, what in known.happened:
        if isinstance(what, ProbeConnected):
            found |= what.versions
    return found


def _troubles(
    run: RunDir, troubles: Sequence[Incident], clock: Callable[[float], str], cwd: str
) -> list[IncidentText]:
    seen: dict[str, int] = {}
    shown = []
    for one in troubles:
        same = seen.setdefault(one.fingerprint, one.number) if one.fingerprint else one.number
        kept = evidence_files.read(run.incident(one.number), cwd) if one.number else None
        shown.append(_trouble(one, clock, same if same != one.number else 0, kept))
    return shown


def _trouble(
    one: Incident, clock: Callable[[float], str], same_as: int, kept: IncidentEvidence | None
) -> IncidentText:
    decided = one.decision
    return IncidentText(
        number=one.number,
        kind=one.kind,
        clock=clock(one.began),
        began=one.began,
        seconds=one.lost,
        attempt=one.attempt,
        outcome=one.outcome,
        headline=prose(sentence("stalled" if one.kind == incidents.STALL else "crashed", one.facts)),
        causes=[_cause(finding) for finding in one.findings],
        announced=[
            StoryLine(line.at, clock(line.at), prose(sentence(line.kind, line.facts)))
            for line in one.announced
            if line.kind not in SAID
        ],
        where=one.where,
        same_as=same_as,
        why=decided.why if decided else "",
        mathematics=decided.mathematics if decided else "",
        evidence=kept,
    )


def _cause(finding: Finding) -> CauseText:
    return CauseText(
        causes.title(finding.cause),
        finding.confidence,
        messages.confidence(finding.confidence),
        finding.evidence,
        finding.against,
        finding.mode,
    )
