"""How often an incident was seen, when, and what helped against it, over all kept runs: values and their words.

Pure: sightings in, values and words out.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from stallguard.core import messages
from stallguard.core.diagnosis import known_problems
from stallguard.core.diagnosis.causes import title
from stallguard.report.narrative import sentence
from stallguard.report.sightings import CPU, ITSELF, SAME, SMALLER, Sighting

SCHEMA = 1
WEEK = 7 * 86_400.0  # seconds
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
REMEDIES = {
    ITSELF: "waiting: it recovered by itself",
    SAME: "a restart with the same batch",
    SMALLER: "a restart with a smaller batch",
    CPU: "a restart on the CPU",
}


class RemedyResults(msgspec.Struct, frozen=True):
    """What followed an incident, and how often the training trained on healthily after it."""

    remedy: str  # itself (it recovered), or a restart: same, smaller (batch), cpu (without the GPU)
    tried: int  # times that the result is known
    helped: int  # times that the next attempt trained on healthily


class KnownReport(msgspec.Struct, frozen=True):
    """A public report that an incident looks like; see core.diagnosis.known_problems."""

    problem: str  # how the report is called
    address: str  # of the report
    what: str  # it describes
    cure: str  # what helped there, by that report
    printed: bool  # the output has its line; false: only the kind of stall is alike


class NamedIncident(msgspec.Struct, frozen=True):
    """All sightings of one incident in the kept runs.  Times: seconds since the epoch."""

    name: str  # empty: of runs that kept too little for a name
    cause: str  # key of the likeliest cause; empty: not known
    count: int  # sightings
    week: int  # sightings in the last seven days
    first: float  # when it was first noticed
    last: float  # when it was last noticed
    last_run: str  # id of the run that had it last
    runs: tuple[str, ...]  # ids of the runs that had it, the oldest first
    where: str  # the script's line at which it last hung; empty: not known
    remedies: tuple[RemedyResults, ...]  # the one that helped most first
    known: tuple[KnownReport, ...]  # public reports that it looks like


class Listing(msgspec.Struct, frozen=True):
    """The incidents of the kept runs, each once, the one that was seen last at the end."""

    schema: int
    incidents: list[NamedIncident]


def named(sightings: Iterable[Sighting], now: float) -> list[NamedIncident]:
    """Return each incident once, the one seen last at the end; those without a name come first, by their cause."""
    groups: defaultdict[tuple[bool, str], list[Sighting]] = defaultdict(list)
    for one in sorted(sightings, key=lambda one: one.at):
        groups[bool(one.name), one.name or one.cause].append(one)
    found = [_summed(group, now) for group in groups.values()]
    return sorted(found, key=lambda one: (bool(one.name), one.last))


def _summed(group: Sequence[Sighting], now: float) -> NamedIncident:
    last = group[-1]
    tried: defaultdict[str, list[bool]] = defaultdict(list)
    for one in group:
        if one.helped is not None:
            tried[one.remedy].append(one.helped)
    remedies = [RemedyResults(remedy, len(results), sum(results)) for remedy, results in tried.items()]
    return NamedIncident(
        name=last.name,
        cause=last.cause,
        count=len(group),
        week=sum(now - one.at <= WEEK for one in group),
        first=group[0].at,
        last=last.at,
        last_run=last.run,
        runs=tuple(dict.fromkeys(one.run for one in group)),
        where=next((one.where for one in reversed(group) if one.where), ""),
        remedies=tuple(sorted(remedies, key=lambda one: (-one.helped, one.tried))),
        known=known(last),
    )


def known(sighting: Sighting) -> tuple[KnownReport, ...]:
    """Return the public reports that an incident looks like."""
    found = known_problems.alike(sighting.cause, sighting.phase, sighting.printed, metal=sighting.metal)
    return tuple(
        KnownReport(one.problem.key, one.problem.address, one.problem.what, one.problem.cure, one.printed)
        for one in found
    )


def known_words(report: KnownReport) -> str:
    """Return a public report as a sentence."""
    facts = {"problem": report.problem, "what": report.what, "cure": report.cure, "address": report.address}
    return sentence("stall.known_problem", facts | {"why": messages.likeness(printed=report.printed)})


def lines(one: NamedIncident, now: float, zone: dt.tzinfo | None = None) -> list[str]:
    """Return an incident as lines: its name and how often, its cause, when, what helped, and what it looks like."""
    week = f" ({one.week} in the last seven days)" if one.count > 1 else ""
    where = f", at {one.where}" if one.where else ""
    seen = f"first {moment(one.first, now, zone)}; last {moment(one.last, now, zone)}, in {one.last_run}"
    helped = remedy_words(one.remedies)
    return [
        f"{one.name or sentence('incident without name', {})}  {times(one.count)}{week}",
        f"{cause_words(one.cause)}{where}",
        seen if one.count > 1 else f"{moment(one.last, now, zone)}, in {one.last_run}",
        *filter(None, [helped]),
        *map(known_words, one.known),
    ]


def seen_words(sighting: Sighting, among: Iterable[Sighting], zone: dt.tzinfo | None = None) -> str:
    """Return how often an incident had been seen by the time of `sighting`; empty if it has no name.

    `among`: all sightings, this one included; `zone`: of the clock that is shown, None for the system's.
    """
    if not sighting.name:
        return ""
    seen = sorted(one.at for one in among if one.name == sighting.name and one.at <= sighting.at)
    lately = sum(sighting.at - at <= WEEK for at in seen)
    if len(seen) <= 1:
        return sentence("incident new", {})
    facts = {"first": day(seen[0], sighting.at, zone), "last": day(seen[-2], sighting.at, zone)}
    if lately > 1:
        return sentence("incident this week", facts | {"ordinal": ordinal(lately)})
    return sentence("incident again", facts | {"ordinal": ordinal(len(seen))})


def remedy_words(remedies: Sequence[RemedyResults]) -> str:
    """Return what followed an incident, and how often it helped; empty if nothing is known."""
    texts = []
    for one in remedies:
        often = "" if one.tried == one.helped == 1 else f" ({one.helped} of {one.tried} times)"
        texts.append(f"{REMEDIES.get(one.remedy, one.remedy)}{often}" if one.helped else "")
    helped = "; ".join(filter(None, texts))
    if helped:
        return sentence("incident helped", {"remedy": helped})
    return (
        sentence("incident unhelped", {"times": times(sum(one.tried for one in remedies))})
        if remedies
        else ""
    )


def times(number: int) -> str:
    """Return how often."""
    return {1: "once", 2: "twice"}.get(number) or f"{number} times"


def cause_words(cause: str) -> str:
    """Return the cause of an incident in words."""
    return title(cause) if cause else sentence("incident without cause", {})


def ordinal(number: int) -> str:
    """Return first, second, ..., 11th, 12th, 21st."""
    if 1 <= number <= len(ORDINALS):
        return ORDINALS[number - 1]
    ending = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def moment(at: float, now: float, zone: dt.tzinfo | None = None) -> str:
    """Return a day with the time of day: 18 Nov 04:12."""
    return f"{day(at, now, zone)} {dt.datetime.fromtimestamp(at, zone):%H:%M}"


def day(at: float, now: float, zone: dt.tzinfo | None = None) -> str:
    """Return a day: 18 Nov, with its year if that is not the one of `now`."""
    date, present = dt.datetime.fromtimestamp(at, zone), dt.datetime.fromtimestamp(now, zone)
    return f"{date.day} {date:%b}" + (f" {date.year}" if date.year != present.year else "")
