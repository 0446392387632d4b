"""Short words that the terminal and the HTML share: figures, names of things, how something came out.

Pure; whole sentences are narrative.py's.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from stallguard.core.device_account import described
from stallguard.core.messages import category, exit_facts, percent
from stallguard.core.text import HOW, count, counted, duration, far, loss_words, quantity
from stallguard.core.time_spent import EFFECTIVE, LOST, ineffective
from stallguard.report.evidence_files import GroupedStacks, IncidentEvidence, Segment
from stallguard.report.first_screen import with_code
from stallguard.report.incident_history import known_words
from stallguard.report.incidents import CRASH, OPEN, OVER, RECOVERED, RESTARTED, STALL
from stallguard.report.narrative import DOES, batch, prose, sentence

__all__ = ["known_words", "prose", "quantity", "with_code"]  # for the pages too

if TYPE_CHECKING:  # a caller that wants words only must not wait for arrays
    from stallguard.report.document import Document, IncidentText
    from stallguard.report.flame_graph import FlameBar, FlameGraph, FlameGraphs
    from stallguard.report.summary import RunTotals
    from stallguard.report.timeline import Panel, Timeline

COLLECTED = "collected"  # a state of evidence.Item
LONG = 0.1  # seconds from which on a duration is shown
OUTCOMES = {RESTARTED: "started again", RECOVERED: "recovered by itself", OVER: "the run ended", OPEN: "not over"}


def alike(incidents: Sequence[IncidentText]) -> list[list[IncidentText]]:
    """Return the incidents in groups: equal ones are of one kind, in one place, and have one most likely cause."""
    groups: dict[tuple[str, ...], list[IncidentText]] = {}
    for one in incidents:
        cause = one.causes[0].title if one.causes else ""
        groups.setdefault((one.kind, one.name or one.headline, one.where, cause), []).append(one)
    return list(groups.values())


def name(*equal: IncidentText) -> str:
    """Return what an incident, or equal incidents, are called."""
    first = equal[0]
    if equal[1:]:
        return counted(len(equal), "", "equal stalls" if first.kind == STALL else "equal crashes")
    return "Crash" if first.kind != STALL else f"Stall {first.number}" if first.number else "Stall"


def summary(*equal: IncidentText) -> str:
    """Return when an incident, or equal incidents, were, what they cost, and how they came out."""
    lost = sum(one.seconds for one in equal)
    cost = f"{duration(lost)} lost" if lost >= LONG else ""
    numbers = Counter(OUTCOMES[one.outcome] for one in equal)
    ends = [how if number == len(equal) else f"{how} ({number})" for how, number in numbers.items()]
    until = f" to {equal[-1].clock}" if equal[1:] else ""
    return ", ".join(filter(None, (equal[0].clock + until, cost, *ends)))


def threads(group: GroupedStacks) -> str:
    """Return who does what: "main thread, waits for a lock", "3 threads alike"."""
    number = len(group.threads)
    who = "main thread" if group.main else f"thread {group.threads[0]}" if number == 1 else f"{number} threads alike"
    return f"{who}, {DOES.get(group.kind, group.kind)}" if group.kind else who


def calls(segment: Segment) -> str:
    """Return calls inside a package as one line."""
    return f"{segment.package}: {count(len(segment.frames), 'call', 'calls')}"


def own_frames(group: GroupedStacks) -> list[str]:
    """Return the script's own frames of a stack, innermost first."""
    return [frame for segment in group.segments if not segment.package for frame in segment.frames]


STOOD = {STALL: "hung", CRASH: "crashed"}  # at a line of the script


def own_first(stacks: Sequence[GroupedStacks]) -> list[GroupedStacks]:
    """Return stacks with the main thread first, then those with frames of the script."""
    return sorted(stacks, key=lambda group: (not group.main, not own_frames(group)))


def all_calls(group: GroupedStacks) -> str:
    """Return how many calls a stack has, as one line."""
    number = sum(len(segment.frames) for segment in group.segments)
    return f"{count(number, 'call', 'calls')}, the innermost first"


def figures(totals: RunTotals) -> list[tuple[str, str]]:
    """Return the sums as rows of a name and a value; what is not known is left out."""
    rows = [
        ("effective training", "" if totals.effective is None else percent(totals.effective)),
        *((category(name), duration(seconds)) for name, seconds in _spent(totals) if seconds >= LONG),
        ("in all", duration(totals.seconds)),
    ]
    return [(row, value) for row, value in rows if value] + counts(totals)


def _spent(totals: RunTotals) -> list[tuple[str, float]]:
    """Return the seconds of each category: what was effective first, then the rest, worst first."""
    return [(name, getattr(totals.spent, name)) for name in EFFECTIVE] + ineffective(totals.spent)


def counts(totals: RunTotals) -> list[tuple[str, str]]:
    """Return the sums that are no times; what is not known is left out."""
    done = count(totals.batches, "batch", "batches") if totals.batches else "none counted"
    rate = f", {totals.rate:.3g} a second" if totals.batches and totals.rate else ""
    in_each = counted(totals.rows, "row") if totals.rows else ""
    parts = ", then ".join(batch(factor) for factor in totals.factors) if totals.factors != (1,) else ""
    of_epochs = f" of {totals.epochs}" if totals.epochs else ""
    rows = [
        ("batches", done + rate),
        ("trained twice", count(totals.repeated or 0, "batch", "batches") if totals.repeated else ""),
        ("batch", "; ".join(filter(None, (in_each, parts)))),
        ("epoch", f"{totals.epoch}{of_epochs}" if totals.epoch is not None else ""),
        ("loss", loss_words(totals.loss, totals.loss_not_finite)),
        ("checkpoints", str(totals.saves) if totals.saves else ""),
        ("attempts", str(totals.attempts)),
    ]
    return [(row, value) for row, value in rows if value]


def share(effective: float | None) -> str:
    """Return the share of effective training time."""
    return "not known" if effective is None else percent(effective)


class TimePart(NamedTuple):
    """A part of the bar of where the time went.  `left`, `width`: of 1000; `named`: it is worth a line of its own."""

    name: str
    value: str
    style: str
    left: str
    width: str
    named: bool


STYLES = {
    "training": "training", "input_wait": "training", "validation": "validation", "checkpoint": "saving",
    "script": "outside", "start_up": "starting", "redone_batches": "redone",
}  # fmt: skip


def parts(totals: RunTotals) -> list[TimePart]:
    """Return where the time of a run went: what was effective first, then the rest, worst first."""
    found, left, whole = [], 0.0, totals.seconds or 1.0
    for name, seconds in _spent(totals):
        if seconds > 0:
            style = STYLES.get(name, "lost" if name in LOST else "outside")
            width = seconds / whole * 1000
            found.append(
                TimePart(category(name), duration(seconds), style, f"{left:.2f}", f"{width:.2f}", seconds >= LONG)
            )
            left += width
    return found


def spent(totals: RunTotals) -> str:
    """Return where the time of a run went as one line."""
    return ", ".join(f"{part.name} {part.value}" for part in parts(totals) if part.named)


TONES = {"finished": "good", "recovered": "good", "gave up": "bad", "failed": "bad", "lost": "bad"}


def tone(badge: str) -> str:
    """Return how a badge is coloured: good, bad or neutral."""
    return TONES.get(badge, "neutral")


def sections(document: Document) -> list[tuple[str, str]]:
    """Return the sections of a page that a document fills, as (place, name)."""
    rows = [
        ("timeline", "Timeline", document.timeline.panels),
        ("story", "What happened", True),
        ("incidents", "Incidents", document.incidents),
        ("slow", "What made it slow", document.bottlenecks),
        ("flames", "Flame graph", document.flames.graphs),
        ("advice", "What helps", document.advice or document.beyond),
        ("trainings", "Trainings", document.trainings),
        ("attempts", "Attempts", True),
        ("settings", "Started as", True),
    ]
    return [(place, name) for place, name, there in rows if there]


# ---- the timeline ---------------------------------------------------------------------------------------------

KINDS = {
    "starting": "starting", "training": "training", "validation": "validation", "saving": "saving",
    "outside": "outside of training", "redone": "trained again", "silence": "no progress", "asleep": "asleep",
}  # fmt: skip


def kinds(timeline: Timeline) -> list[tuple[str, str]]:
    """Return the kinds of bands that a timeline has, each with its name."""
    present = {band.kind for band in timeline.bands}
    return [(kind, name) for kind, name in KINDS.items() if kind in present]


def groups(timeline: Timeline) -> list[tuple[str, list[Panel]]]:
    """Return the panels by the group that they stand in."""
    return [(title, list(panels)) for title, panels in groupby(timeline.panels, key=lambda panel: panel.group)]


def quiet(timeline: Timeline) -> str:
    """Return what was measured and never was anything but zero; empty if there is no such thing."""
    names = ", ".join(timeline.quiet)
    return prose(sentence("story quiet", {"names": names})) if names else ""


def span(timeline: Timeline) -> str:
    """Return the time of day at which a timeline begins and ends."""
    begin = dt.datetime.fromtimestamp(timeline.start + timeline.offset, dt.UTC)
    return f"{begin:%H:%M:%S} to {begin + dt.timedelta(seconds=timeline.seconds):%H:%M:%S}"


def same(trouble: IncidentText) -> str:
    """Return that an incident hung in the stacks of an earlier one."""
    return prose(sentence("same stacks", {"number": str(trouble.same_as)}))


def device(trouble: IncidentText) -> str:
    """Return what the GPU did in the gap; empty if nothing of it is known."""
    said = described(trouble.device) if trouble.device else ""
    return prose(sentence("device did", {"account": said})) if said else ""


def kept(evidence: IncidentEvidence) -> list[tuple[str, str]]:
    """Return what was collected as one row, and a row for each kind that was not, with its reason."""
    there = [
        f"{item.name} ({duration(item.seconds)})" if item.seconds >= LONG else item.name
        for item in evidence.items
        if item.state == COLLECTED and not item.why
    ]
    rows = [(item.name, f"{item.state}: {item.why}") for item in evidence.items if item.why]
    return [(COLLECTED, ", ".join(there)), *rows] if there else rows


def unseen(trouble: IncidentText) -> str:
    """Return why the stacks of an incident are not there; empty if they are, or were not requested."""
    items = trouble.evidence.items if trouble.evidence and not trouble.evidence.stacks else ()
    why = next((item.why for item in items if item.name == "stacks"), "")
    return prose(sentence("no stacks", {"why": why})) if why else ""


# ---- the attempts -----------------------------------------------------------------------------------------------

ATTEMPT = ("attempt", "lasted", "batches", "came to", "batch", "ended")


def attempts(document: Document) -> list[tuple[str, ...]]:
    """Return the rows of the table of attempts, as ATTEMPT names their cells."""
    rows: list[tuple[str, ...]] = []
    for one in document.attempts:
        begun = ", resumed" if one.resumed else ", from scratch" if one.number > 1 else ""
        lasted = duration(one.ended - one.began) if one.ended is not None else ""
        done = count(one.batches, "", "").strip()
        epoch = "" if one.epoch is None else f"epoch {one.epoch + 1}"
        device = sentence("on cpu", {}) if one.device == "cpu" else ""
        how = "" if one.code is None else exit_facts(one.number, one.code)["how"]
        rows.append((f"{one.number}{begun}", lasted, done, epoch, batch(one.factor) + device, how))
    return rows


TRAINING = ("training", "batches", "came to", "lasted", "attempts", "its end")


def trainings(document: Document) -> list[tuple[str, ...]]:
    """Return the rows of the table of trainings, as TRAINING names their cells; none if there was only one."""
    rows: list[tuple[str, ...]] = []
    for one in document.trainings:
        what = one.command or f"pid {one.pid}"
        done = count(one.batches, "", "").strip()
        epoch = None if one.epoch is None else one.epoch + 1
        came = far(epoch, one.epochs, loss_words(one.loss, one.loss_not_finite))
        rows.append((what, done, came, duration(one.seconds), str(one.attempts), HOW.get(one.how, one.how)))
    return rows


class DrawnBar(NamedTuple):
    """A bar of a flame graph.  `left`, `width`: percent of the graph; `style`: classes of the page's styles."""

    left: str
    width: str
    style: str
    title: str
    text: str


NARROW = 4.0  # percent of the graph; a narrower bar has no text until it is enlarged


def bar(graph: FlameGraph, one: FlameBar) -> DrawnBar:
    """Return how a bar is drawn, and what is said of it."""
    whole = graph.seconds or 1.0
    width = one.seconds / whole * 100
    place = f", {one.place}" if one.place else ""
    kind = one.kind.replace(" ", "-")
    return DrawnBar(
        left=f"{one.start / whole * 100:.4f}",
        width=f"{width:.4f}",
        style=f"{kind} narrow" if width < NARROW else kind,
        title=f"{one.name}{place}: {duration(one.seconds)}, {width:.3g} %",
        text=f"{one.name} {one.place}".rstrip(),
    )


def flames(graphs: FlameGraphs) -> str:
    """Return how to read the flame graphs."""
    text = prose(sentence("flame graph", {}))
    left_out = {"count": counted(graphs.left_out, "training")}
    return f"{text} {prose(sentence('flames left out', left_out))}" if graphs.left_out else text


def secrets(document: Document) -> str:
    """Return what was removed from the report."""
    rules = ", ".join(f"{number} x {rule}" for rule, number in sorted(document.removed.items()))
    return prose(sentence("secrets" if rules else "nothing removed", {"rules": rules}))
