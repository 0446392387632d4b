"""What made the trainings of a run slow: the last word of the journal on each training, summed over all of them.

This module must not lay anything out.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from stallguard.core import messages
from stallguard.core.actions import SlowedBy
from stallguard.core.events import Profiled
from stallguard.core.profile import PAUSED, TRAINING
from stallguard.core.verdicts import Bottleneck
from stallguard.report.journal_record import Record
from stallguard.report.narrative import DOES, prose, sentence

PLACES = 3  # that are named of the time before a stall


class BottleneckText(msgspec.Struct, frozen=True):
    """One thing that made the run slow.  `headline`: the whole of it as one sentence."""

    kind: str  # as the journal calls it
    headline: str
    seconds: float  # that it cost, in all trainings of the run
    share: float  # of the time that was watched, 0..1
    where: str
    file: str  # the script's file with that place; empty if none is named
    line: int  # of that file
    evidence: tuple[str, ...]
    advice: tuple[str, ...]


def bottlenecks(record: Record) -> list[BottleneckText]:
    """Return what made the run slow, the one that cost most first."""
    newest = {
        (what.attempt, what.pid): what for _, what in record.happened if isinstance(what, SlowedBy)
    }.values()
    watched = sum(one.seconds for one in newest)
    same: defaultdict[tuple[str, str], list[Bottleneck]] = defaultdict(list)
    for one in newest:
        for found in one.bottlenecks:
            same[found.kind, found.where].append(found)
    texts = []
    for group in same.values():
        worst, cost = max(group, key=lambda found: found.seconds), sum(found.seconds for found in group)
        whole = msgspec.structs.replace(worst, seconds=cost, share=cost / watched if watched else worst.share)
        facts = messages.bottleneck(msgspec.structs.replace(whole, evidence=()))
        texts.append(
            BottleneckText(
                worst.kind, prose(sentence("bottleneck", facts)), round(cost, 1), round(whole.share, 3), worst.where,
                worst.file, worst.line, worst.evidence, worst.advice,
            )
        )  # fmt: skip
    return sorted(texts, key=lambda text: -text.seconds)


def before(record: Record, at: float) -> tuple[str, ...]:
    """Return the places of the script in which the training spent most time before `at` (seconds since the epoch)."""
    profiles = [what.profile for then, what in record.happened if isinstance(what, Profiled) and then <= at]
    if not profiles or not profiles[-1].watched:
        return ()
    newest = profiles[-1]
    places: defaultdict[str, float] = defaultdict(float)
    for spot in newest.spots:
        if spot.role == TRAINING and spot.file and spot.phase not in PAUSED:
            places[f"{spot.where} ({DOES.get(spot.does, spot.does)})"] += spot.seconds
    ranked = sorted(places.items(), key=lambda item: -item[1])[:PLACES]
    return tuple(f"{seconds / newest.watched:.0%} {place}".replace("%", " %", 1) for place, seconds in ranked)
