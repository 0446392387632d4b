"""The ledger of a run from its journal: the same seconds as the supervisor's core counted, by the same function.

Pure: a record in, values out.  Must not judge.
"""

from __future__ import annotations

from collections.abc import Iterator

from stallguard.core import ledger
from stallguard.core.ledger import Ledger
from stallguard.core.time_spent import Spent
from stallguard.report.journal_record import Happening, Record


def spent(record: Record) -> Spent:
    """Return where the time of a run went, until the last line of its journal."""
    last = ledger.begin(record.clock_span[0])
    for _, _, known in steps(record):
        last = known
    return ledger.spent(last, record.clock_span[1])


def steps(record: Record) -> Iterator[tuple[float, Happening, Ledger]]:
    """Yield what happened with its time (seconds since the epoch), each with the ledger after it."""
    known = ledger.begin(record.clock_span[0])
    for (when, what), at in zip(record.in_order, record.clocks, strict=True):
        known = ledger.after(known, at, what)
        yield when, what, known
