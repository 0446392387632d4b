"""A run as `morning` shows it: the summary from its files, in numbers.

The words are overnight.py's.  Must not lay anything out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from stallguard.core.diagnosis.causes import title
from stallguard.errors import STOPPED_ON_TIME
from stallguard.report import attempt_rows, incident_history, incidents, journal_record, summary, totals
from stallguard.report.overnight import Night, NightIncident
from stallguard.report.sanitize import one_line
from stallguard.report.sightings import Sighting
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

BY_REQUEST = ("stopped", "interrupted")  # states by request, and at a set time
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
    sums = totals.totals(known, tries, troubles, end)
    advice = summary.advice(troubles) or summary.loss_advice(sums)
    ended = (
        f"{dt.datetime.fromtimestamp(known.last, zone):%H:%M}" if known.last and state != "running" else ""
    )
    causes = [title(one.findings[0].cause) for one in troubles if one.findings]
    return Night(
        run=run.id,
        command=one_line(" ".join(asked.command)) if asked else "?",
        state="ended" if state in BY_REQUEST and end and end.code != STOPPED_ON_TIME else state,
        seconds=sums.seconds,
        ended=ended,
        why=end.why if end else "",
        epoch=sums.epoch,
        epochs=sums.epochs,
        batches=sums.batches,
        loss=sums.loss,
        first_loss=sums.first_loss,
        loss_not_finite=sums.loss_not_finite,
        broken_loss=sums.broken_loss,
        stalls=sums.stalls,
        crashes=sums.crashes,
        restarts=sums.restarts,
        lost=sums.lost,
        effective=sums.effective,
        spent=sums.spent,
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
