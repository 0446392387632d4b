"""The ledger of a run from its journal: the same seconds as the supervisor's core counted, by the same function.

Pure: a record in, values out.  Must not judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallguard.core import ledger
from stallguard.core.ledger import Ledger
from stallguard.core.time_spent import Spent
from stallguard.report.journal_record import Happening, Record

Step = tuple[float, Happening, Ledger]


def spent(record: Record, walk: Sequence[Step] | None = None) -> Spent:
    """Return where the time of a run went, until the last line of its journal.  `walk`: its steps, if known."""
    walk = list(steps(record)) if walk is None else walk
    last = walk[-1][2] if walk else ledger.begin(record.clock_span[0])
    return ledger.spent(last, record.clock_span[1])


def steps(record: Record) -> Iterator[Step]:
    """Yield what happened with its time (seconds since the epoch), each with the ledger after it.

    Of a night these are thirty thousand, and take 0.15 s: who needs them more than once keeps them.
    """
    known = ledger.begin(record.clock_span[0])
    for (when, what), at in zip(record.in_order, record.clocks, strict=True):
        known = ledger.after(known, at, what)
        yield when, what, known
