"""The attempts of a run, each with its beginning, its end, and how far its trainings came.

Pure: a record in, values out.  Must not judge why an attempt ended; that is in incidents.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallguard.core import slicing
from stallguard.core.actions import Announce
from stallguard.core.events import Exited, Failed, Launched, ProbeNote
from stallguard.report.journal_record import Record
from stallguard.report.programs import Counts, Program, programs, together


class AttemptRow(Counts, kw_only=True, omit_defaults=True):
    """One start of the command, with the sums of what its trainings came to.  Times: as in Counts."""

    number: int
    began: float
    pid: int = 0
    factor: int = 1
    device: str = "default"
    resumed: bool = False
    ended: float | None = None
    code: int | None = None
    trainings: int = 0


def attempts(record: Record, found: Sequence[Program] | None = None) -> list[AttemptRow]:
    """Return the attempts, the first one first.  `found`: the programs of the record, if they are known."""
    tries: dict[int, AttemptRow] = {}
    for at, event in record.happened:
        if isinstance(event, Launched):
            tries[event.attempt] = AttemptRow(
                number=event.attempt, began=at, pid=event.pid, factor=event.factor, device=event.device,
                resumed=event.resumed,
            )  # fmt: skip
        elif isinstance(event, ProbeNote) and event.attempt in tries:
            tries[event.attempt].factor = slicing.factor(event) or tries[event.attempt].factor
        elif isinstance(event, Announce) and event.message == "batch.whole" and tries:
            tries[max(tries)].factor = slicing.factor(event) or tries[max(tries)].factor  # of a loop
        elif isinstance(event, Exited | Failed) and event.attempt in tries:
            known = isinstance(event, Failed) or event.known
            tries[event.attempt].ended, tries[event.attempt].code = at, event.code if known else None
    each: dict[int, list[Program]] = {}
    for one in programs(record) if found is None else found:
        each.setdefault(one.attempt, []).append(one)
    for number, started in each.items():
        made = tries.setdefault(number, AttemptRow(number=number, began=started[0].began))
        trained = [one for one in started if one.trains] or started[-1:]
        counts = together(trained)
        for name in Counts.__struct_fields__:
            setattr(made, name, getattr(counts, name))
        made.first_beat = made.first_beat and max(made.began, made.first_beat)
        made.trainings = sum(one.trains for one in trained)
    return sorted(tries.values(), key=lambda attempt: attempt.number)


def repeated(all_attempts: Sequence[AttemptRow]) -> int | None:
    """Return how many batches were trained a second time after restarts; None if it is not known."""
    total, before = 0, None
    for attempt in all_attempts:
        if before is not None and attempt.batches:
            if attempt.resumed_at is None:
                return None
            total += max(0, before - attempt.resumed_at)
        if attempt.reached is not None:
            before = max(before or 0, attempt.reached)
        elif attempt.batches:
            return None if len(all_attempts) > 1 else 0
    return total
