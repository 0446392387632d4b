"""A run as the morning tells it: the summary from its files, in numbers.

The words are morning.py's.  May not lay anything out.
"""

from __future__ import annotations

import datetime as dt

from stallguard import outcome
from stallguard.core.causes import TITLES
from stallguard.paths import RunDir
from stallguard.report import attempts, incidents, record, story, totals
from stallguard.report.morning import Night
from stallguard.report.record import Record


def night(run: RunDir, zone: dt.tzinfo | None = None) -> Night:
    """Return the summary of a run.  `zone`: of the clock that is shown, None for the system's."""
    known = record.read(run.journal)
    tries, troubles = attempts.attempts(known), incidents.incidents(known)
    sums = totals.totals(known, tries, troubles)
    asked, end, state = outcome.asked(run), outcome.outcome(run), outcome.state(run)
    advice = story.advice(troubles)
    causes = [TITLES.get(one.findings[0].cause, one.findings[0].cause) for one in troubles if one.findings]
    return Night(
        run=run.id,
        command=" ".join(asked.command) if asked else "?",
        state=state,
        seconds=end.seconds if end else sums.seconds,
        ended="" if state == "running" else _clock(known, zone),
        why=end.why if end else "",
        epoch=sums.epoch,
        epochs=sums.epochs,
        batches=sums.batches,
        loss=sums.loss,
        first_loss=sums.first_loss,
        stalls=sums.stalls,
        restarts=sums.restarts,
        lost=sums.lost,
        causes=tuple(causes),
        advice=advice[0] if advice else "",
    )


def _clock(known: Record, zone: dt.tzinfo | None) -> str:
    return f"{dt.datetime.fromtimestamp(known.last, zone):%H:%M}" if known.last else ""
