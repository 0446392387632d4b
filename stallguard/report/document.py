"""The whole report as one value: what the terminal, the HTML and the JSON show, without secrets.

Gathers from the run's directory; what is missing or damaged there leaves a hole in the report, never an error.
Must not lay anything out.
"""

from __future__ import annotations

import datetime as dt
import gc
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import msgspec

from stallguard.config import DEFAULT
from stallguard.config.table import key_of
from stallguard.core import messages
from stallguard.core.actions import Announce
from stallguard.core.device_account import DeviceAccount, account
from stallguard.core.diagnosis import causes
from stallguard.core.events import ProbeConnected
from stallguard.core.readings import Device
from stallguard.core.text import whole_number
from stallguard.errors import StallguardError
from stallguard.launch import earlier_run
from stallguard.report import (
    attempt_rows,
    evidence_files,
    first_screen,
    incident_history,
    incidents,
    journal_record,
    sampled_stacks,
    summary,
    timeline,
)
from stallguard.report.attempt_rows import AttemptRow, TrainingRow
from stallguard.report.evidence_files import IncidentEvidence
from stallguard.report.first_screen import FirstScreen
from stallguard.report.flame_graph import FlameGraphs
from stallguard.report.incident_history import KnownReport, Sighting
from stallguard.report.incidents import Announcement, Incident
from stallguard.report.journal_record import clock
from stallguard.report.narrative import prose, sentence
from stallguard.report.summary import BottleneckText, RunTotals
from stallguard.report.timeline import Timeline
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs
from stallguard.storage.run_files import RunRequest

SCHEMA = 1
TOLD_MAX = 2000  # sentences
HEADLINES = {incidents.STALL: "training.stalled", incidents.CRASH: "attempt.crashed"}
# What the rest of an incident says already.
SAID = (
    "training.stalled", "attempt.crashed", "stall.diagnosed", "stall.alternative", "stall.advice",
    "stall.known_problem",
)  # fmt: skip


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
    """An incident as it is shown.  `same_as`: number of an earlier one that hung in exactly the same stacks.

    `name`: the same for the same hang in each run, empty if too little was kept; `seen`: how often it had been seen by
    then in the kept runs; `known`: public reports that it looks like.
    """

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
    before: tuple[str, ...] = ()  # the places of the script that had the most time before it
    same_as: int = 0
    why: str = ""
    mathematics: str = ""
    evidence: IncidentEvidence | None = None
    name: str = ""
    seen: str = ""
    known: tuple[KnownReport, ...] = ()
    device: DeviceAccount | None = None  # what the GPU did from the last progress until something was done


class Document(msgspec.Struct, frozen=True):
    """A report.  Times: seconds since the epoch; `offset`: seconds to add for the user's own clock."""

    schema: int
    run: str
    state: str
    command: list[str]
    cwd: str
    began: str
    zone: str
    first: FirstScreen  # what is said before all else
    story: list[str]
    totals: RunTotals
    attempts: list[AttemptRow]
    trainings: list[TrainingRow]  # if there were several
    incidents: list[IncidentText]
    bottlenecks: list[BottleneckText]  # what made it slow, the one that cost most first
    advice: list[str]
    beyond: list[str]
    announced: list[StoryLine]
    output: list[str]
    versions: dict[str, str]
    removed: dict[str, int]
    settings: dict[str, str]  # what the run was started with, other than the defaults
    timeline: Timeline
    flames: FlameGraphs  # of the sampled stacks; no graph if the run has no samples


def make(run: RunDir, environment: Mapping[str, str], zone: dt.tzinfo | None = None) -> Document:
    """Return the report of a run.

    `environment`: whose secrets are removed too; `zone`: of the clock that is shown, None for the system's.
    """
    sweeps = gc.isenabled()
    gc.disable()  # the search for cycles: a night is a hundred thousand values, all of them needed to the end
    try:
        asked = run_files.asked(run)
        whole = _gathered(run, asked, zone, environment.get("HOME", ""))
        # The timeline has no text but stallguard's: its many numbers stay as they are.
        bare = msgspec.structs.replace(whole, timeline=Timeline(0.0, 0.0, 0.0, [], [], [], [], []))
        clean = sampled_stacks.without_secrets(bare, run, environment)
        return msgspec.structs.replace(clean, timeline=whole.timeline)
    finally:
        if sweeps:
            gc.enable()


def _gathered(run: RunDir, asked: RunRequest | None, zone: dt.tzinfo | None, home: str) -> Document:
    """Return the report with secrets and all.  `home`: the user's home directory."""
    known = journal_record.read(run.journal)
    started = attempt_rows.programs(known)
    tries, trained = attempt_rows.attempts(known, started), attempt_rows.trainings(started)
    troubles = incidents.incidents(known)
    shown = clock(known.first, known.last, zone)
    state = run_files.state(run)
    end = run_files.outcome(run)  # after the state: a run that is over has its reason
    sums, slow = summary.totals(known, tries, troubles, end), summary.bottlenecks(known)
    cwd, output = asked.cwd if asked else "", evidence_files.last_lines(run.output)
    here = dt.datetime.fromtimestamp(known.first, zone).astimezone(zone)
    offset = (here.utcoffset() or dt.timedelta()).total_seconds()
    greetings = [what for _, what in known.happened if isinstance(what, ProbeConnected)]
    versions = {name: its for what in greetings for name, its in what.versions.items()}
    announced = [(at, what) for at, what in known.happened if isinstance(what, Announce)]
    texts: defaultdict[str, list[str]] = defaultdict(list)  # of the announcements, by their message
    for _, said in announced:
        texts[said.message].append(said.facts.get("text", ""))
    facts = {"code": str(end.code), "why": end.why or "the training ended"} if end else {}
    if texts["training.changed"]:
        facts["mathematics"] = texts["training.changed"][-1]
    in_incidents = {line.facts.get("text") for one in troubles for line in one.announced}
    inexact = [text for text in dict.fromkeys(texts["attempt.inexact"]) if text not in in_incidents]
    saving = [said for _, said in announced if said.message in ("checkpoint.failed", "checkpoint.again")]
    unsaved = saving[-1].facts.get("why", "") if saving and saving[-1].message == "checkpoint.failed" else ""
    library, helps = causes.library(versions), summary.advice(troubles, sums)
    copied = run_files.elsewhere(run)
    first = first_screen.first_screen(
        state, end.why if end else "", troubles, asked, output, resumable=run.has_checkpoints(),
        alive=earlier_run.find_orphan(run) is not None, advice=helps, home=home,
        job=copied.job if copied else "", broken_loss=sums.broken_loss, library=library,
    )  # fmt: skip
    return Document(
        schema=SCHEMA, run=run.id, state=state, command=asked.command if asked else [], cwd=cwd,
        began=f"{here:%A, %d %B %Y, %H:%M}" if known.first else "", zone=here.tzname() or "", first=first,
        story=summary.story(state, facts, sums, tries, troubles, shown, trained, inexact, unsaved, slow, library),
        totals=sums, attempts=tries, trainings=trained,
        incidents=_incidents(run, troubles, shown, cwd, known, zone, library),
        bottlenecks=slow, advice=helps, beyond=texts["training.limitation"],
        announced=[_line(at, what, shown) for at, what in announced[-TOLD_MAX:]],
        output=output, versions=versions, removed={}, settings=made_settings(asked),
        timeline=timeline.timeline(known, tries, troubles, offset),
        flames=sampled_stacks.flames(sampled_stacks.read(run, known, started), cwd),
    )  # fmt: skip


def _incidents(
    run: RunDir,
    troubles: Sequence[Incident],
    clock: Callable[[float], str],
    cwd: str,
    known: journal_record.Record,
    zone: dt.tzinfo | None,
    library: str,
) -> list[IncidentText]:
    seen: dict[str, int] = {}
    shown = []
    sighted = incident_history.of_run(run) if troubles else ()
    all_sighted = _all_sighted(run) if sighted else []
    for one, sighting in zip_longest(troubles, sighted[: len(troubles)]):
        same = seen.setdefault(one.fingerprint, one.number) if one.fingerprint else one.number
        place = run.incident(one.number) if one.kind == incidents.STALL else run.crash(one.attempt)
        kept = evidence_files.read(place, cwd)
        fits = [
            CauseText(
                causes.title(finding.cause, library, one.facts.get("phase", "")),
                finding.confidence, messages.confidence(finding.confidence),
                finding.evidence, finding.against, finding.mode,
            )
            for finding in one.findings
        ]  # fmt: skip
        decided = one.decision
        shown.append(IncidentText(
            number=one.number, kind=one.kind, clock=clock(one.began), began=one.began, seconds=one.lost,
            attempt=one.attempt, outcome=one.outcome, where=one.where, causes=fits, evidence=kept,
            before=summary.before(known, one.began),
            headline=prose(sentence(HEADLINES[one.kind], one.facts)),
            announced=[_line(line.at, line, clock) for line in one.announced if line.message not in SAID],
            same_as=same if same != one.number else 0,
            why=decided.why if decided else "", mathematics=decided.mathematics if decided else "",
            name=sighting.name if sighting else "",
            seen=incident_history.seen_words(sighting, all_sighted, zone) if sighting else "",
            known=incident_history.known(sighting) if sighting else (),
            device=_device(one, known) if one.kind == incidents.STALL else None,
        ))  # fmt: skip
    return shown


def _device(one: Incident, known: journal_record.Record) -> DeviceAccount | None:
    """Return what the GPU did while the training stood still; of several trainings, that of the one that stalled."""
    pid, ended = whole_number(one.facts.get("pid")) or 0, one.ended or known.last
    seen = ((at, reading) for at, reading in known.readings.get("device", ()) if isinstance(reading, Device))
    wanted = ((at, reading) for at, reading in seen if not pid or reading.pid in (0, pid))
    return account(wanted, one.began, min(ended, one.acted or ended))


def _all_sighted(run: RunDir) -> list[Sighting]:
    """Return the incidents of all runs beside this one, and its own."""
    try:
        beside = list_runs(run.path.parent)
    except StallguardError:
        beside = []
    return incident_history.of_runs(beside if run in beside else [*beside, run])


def _line(at: float, announced: Announce | Announcement, clock: Callable[[float], str]) -> StoryLine:
    return StoryLine(at, clock(at), prose(sentence(announced.message, announced.facts)))


def made_settings(asked: RunRequest | None) -> dict[str, str]:
    """Return by its name the value of each setting that is no default, and where it is from."""
    found: dict[str, str] = {}
    for name, origin in (asked.origins if asked else {}).items():
        section, _, key = name.partition(".")
        value = asked.config.get(section, {}).get(key) if asked else None
        if origin != DEFAULT and value is not None and (known := key_of(name)):
            found[name] = f"{known.kind.show(value)} ({origin})"
    return found
