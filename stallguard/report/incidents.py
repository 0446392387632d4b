"""The incidents of a run: what was noticed, why it is thought so, what was done, and how it came out.

Pure: what happened, in order, becomes values.  Must not read the evidence on the disk
(evidence_files.py does), and makes no sentence of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from stallguard.core import ledger
from stallguard.core.actions import Announce, Collect, Conclude, Diagnosed, Signal
from stallguard.core.events import Collected, Exited, Launched
from stallguard.core.text import whole_number
from stallguard.core.time_spent import LOST, total
from stallguard.core.verdicts import Decision, Finding
from stallguard.report import journal_record
from stallguard.report.journal_record import Happening, Record, ago

STALL, CRASH = "stall", "crash"
RESTARTED, RECOVERED, OVER, OPEN = "restarted", "recovered", "over", "open"
# What the next attempt announces about its own beginning.
AFTER = ("attempt.resumed", "attempt.inexact", "batch.smaller", "batch.whole", "training.limitation")


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


def incidents(record: Record, walk: Iterable[journal_record.Step] | None = None) -> list[Incident]:
    """Return the incidents in order.  `walk`: the steps of the ledger, if they are known.

    Each costs what the ledger counts as lost from its last progress on, until the training is as far again or the last
    progress before the next one.
    """
    reader, last = _Reader(record), ledger.Ledger(since=record.clock_span[0])
    paying: Incident | None = None
    paid = 0.0  # what was lost before the incident that is paying
    for at, what, now in journal_record.steps(record) if walk is None else walk:
        settled, noticed = total(last.spent, LOST), len(reader.found)
        how = _TAKE.get(type(what))
        if how is not None:
            how(reader, at, what)
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
        how = _TAKE.get(type(what))
        if how is not None:
            how(reader, at, what)
    return reader.found


class _Reader:
    """Goes through what happened; `open` is the incident that is under way."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.found: list[Incident] = []
        self._open: Incident | None = None
        self._attempt = 1
        self._crashed_at = ""  # where the present attempt crashed, once it has ended

    def announce(self, at: float, announced: Announce) -> None:
        """A stall or crash begins; or an announcement about the one that is open, or just was."""
        if announced.message == "training.stalled" or (
            announced.message == "attempt.crashed" and self._open is None
        ):
            self._end(at, OVER)
            before = self._record.heartbeat_before(at, whole_number(announced.facts.get("pid")) or 0)
            began = at if before is None else ago(before[0], before[1].at, before[1].progress_at)
            kind = STALL if announced.message == "training.stalled" else CRASH
            self._open = Incident(kind, self._attempt, began, at, facts=announced.facts)
            if kind == CRASH:
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

    def collect(self, _at: float, action: Collect) -> None:
        """The evidence gets its number."""
        if self._open is not None and action.incident:
            self._open.number = action.incident

    def collected(self, _at: float, event: Collected) -> None:
        """The evidence says where it hangs."""
        if self._open is not None and event.incident == self._open.number:
            self._open.where, self._open.classes = event.where, event.stacks
            self._open.fingerprint = event.fingerprint

    def judged(self, _at: float, action: Diagnosed) -> None:
        """The newest findings stand."""
        if self._open is not None:
            self._open.findings = action.findings
            self._open.decision = action.decision or self._open.decision

    def exited(self, at: float, event: Exited) -> None:
        """The process has ended; that it crashed is announced next."""
        self._crashed_at = event.where
        self.acted(at, event)

    def acted(self, at: float, _what: Happening) -> None:
        """The process is being ended, or has ended."""
        if self._open is not None and self._open.acted is None:
            self._open.acted = at

    def launched(self, at: float, event: Launched) -> None:
        """The next attempt ends the incident."""
        self._attempt = event.attempt
        self._end(at, RESTARTED)

    def concluded(self, at: float, _action: Conclude) -> None:
        """The run is over."""
        self._end(at, OVER)


_TAKE: dict[type, Callable[..., None]] = {
    Announce: _Reader.announce,
    Collect: _Reader.collect,
    Collected: _Reader.collected,
    Diagnosed: _Reader.judged,
    Signal: _Reader.acted,
    Exited: _Reader.exited,
    Launched: _Reader.launched,
    Conclude: _Reader.concluded,
}
