"""The incidents of a run: what was noticed, why it is thought so, what was done, and how it came out.

Pure: what happened, in order, becomes values.  Must not read the evidence on the disk
(evidence_files.py does), and makes no sentence of its own.
"""

from __future__ import annotations

import msgspec

from stallguard.core import ledger
from stallguard.core.actions import Announce, Collect, Conclude, Diagnosed, Signal
from stallguard.core.events import Collected, Exited, Heartbeat, Launched
from stallguard.core.text import whole_number
from stallguard.core.time_spent import LOST, total
from stallguard.core.verdicts import Decision, Finding
from stallguard.report.journal_record import Happening, Record, ago

STALL, CRASH = "stall", "crash"
RESTARTED, RECOVERED, OVER, OPEN = "restarted", "recovered", "over", "open"
# What the next attempt announces about its own beginning.
AFTER = ("attempt.own", "attempt.resumed", "attempt.inexact", "batch.smaller", "batch.whole", "training.limitation")


class Announcement(msgspec.Struct, frozen=True):
    """An announcement: the name of a message in report.narrative, and its facts."""

    at: float
    message: str
    facts: dict[str, str] = {}


class Incident(msgspec.Struct, omit_defaults=True):
    """One stall or crash.  Times: seconds since the epoch.

    `number`: of its directory of evidence, 0 without one; `began`: the last progress before it; `ended`: when it
    was over, by recovery, by the next attempt or with the run; `acted`: when its process was ended or ended.
    """

    kind: str
    attempt: int
    began: float
    noticed: float
    number: int = 0
    acted: float | None = None
    ended: float | None = None
    outcome: str = OPEN
    facts: dict[str, str] = {}
    where: str = ""
    classes: tuple[str, ...] = ()
    fingerprint: str = ""
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None
    announced: list[Announcement] = []
    lost: float = 0.0  # seconds that it cost (core.time_spent.LOST)


def incidents(record: Record) -> list[Incident]:
    """Return the incidents in order.

    Each costs what the ledger counts as lost from its last progress on, until the training is as far again or the last
    progress before the next one.
    """
    reader, last = _Reader(record), ledger.Ledger(since=record.clock_span[0])
    paying: Incident | None = None
    paid = 0.0  # what was lost before the incident that is paying
    for at, what, now in record.steps:
        settled, noticed = total(last.spent, LOST), len(reader.found)
        reader.take(at, what)
        new = reader.found[noticed:]
        if paying is not None and (new or not last.is_interrupted):
            paying.lost, paying = settled - paid, None
        if new:
            paying, paid = new[0], settled
        last = now
    if paying is not None:
        paying.lost = total(ledger.spent(last, record.clock_span[1]), LOST) - paid
    return reader.found


def noticed(record: Record) -> list[Incident]:
    """Return the incidents in order, without what they cost; the record need not have what the sensors read."""
    reader = _Reader(record)
    for at, what in record.happened:
        reader.take(at, what)
    return reader.found


class _Reader:
    """Goes through what happened; `_open` is the incident that is under way."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.found: list[Incident] = []
        self._open: Incident | None = None
        self._attempt = 1
        self._crashed_at = ""  # where the present attempt crashed, once it has ended

    def take(self, at: float, what: Happening) -> None:
        """Take what happened next."""
        if isinstance(what, Heartbeat):  # nearly all of a night
            return
        match what:
            case Announce():
                self._announce(at, what)
            case Launched():
                self._attempt = what.attempt
                self._end(at, RESTARTED)
            case Conclude():
                self._end(at, OVER)
            case Exited():  # that it crashed is announced next
                self._crashed_at = what.where
        one = self._open
        if one is None:
            return
        match what:
            case Collect() if what.incident:
                one.number = what.incident
            case Collected() if what.incident == one.number:
                one.where, one.classes, one.fingerprint = what.where, what.stacks, what.fingerprint
            case Diagnosed():  # the newest findings stand
                one.findings, one.decision = what.findings, what.decision or one.decision
            case Signal() | Exited() if one.acted is None:
                one.acted = at

    def _announce(self, at: float, announced: Announce) -> None:
        """A stall or crash begins; or an announcement about the one that is open, or just was."""
        stalls = announced.message == "training.stalled"
        if stalls or (announced.message == "attempt.crashed" and self._open is None):
            self._end(at, OVER)
            before = self._record.heartbeat_before(at, whole_number(announced.facts.get("pid")) or 0)
            began = at if before is None else ago(before[0], before[1].at, before[1].progress_at)
            self._open = Incident(STALL if stalls else CRASH, self._attempt, began, at, facts=announced.facts)
            if not stalls:
                self._open.acted, self._open.where = at, self._crashed_at
            self.found.append(self._open)
        last = self._open or (self.found[-1] if self.found and announced.message in AFTER else None)
        if last is not None:
            last.announced.append(Announcement(at, announced.message, announced.facts))
        if announced.message in ("training.recovered", "training.continued"):
            self._end(at, RECOVERED)

    def _end(self, at: float, outcome: str) -> None:
        if self._open is not None:
            self._open.ended, self._open.outcome = at, outcome
        self._open = None
