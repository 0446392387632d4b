"""Two runs side by side: how each ended, its time and pace, its loss, its incidents, and the settings that differ.

Pure: two reports in, one value out.  Must not lay anything out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from stallguard.core import messages
from stallguard.core.text import duration, loss_words
from stallguard.core.time_spent import CATEGORIES
from stallguard.report import labels, svg_chart
from stallguard.report.document import Document
from stallguard.report.narrative import prose, sentence
from stallguard.report.sanitize import one_line
from stallguard.report.timeline import Panel

SCHEMA = 1
NOTHING = "-"
SAME = 0.005  # relative difference below which two numbers are called the same
Changed = Callable[[float | None, float | None], str]
CHARTS = ("rate", "batch", "loss", "cpu", "memory", "gpu")  # panels that are drawn for both runs in one


class ComparedRow(msgspec.Struct, frozen=True):
    """One property of both runs.  `first`, `second`: its values as text."""

    name: str  # what is compared
    first: str
    second: str
    change: str = ""  # from the first run to the second, as text; empty: none, or it is no number


class OverlaidChart(msgspec.Struct, frozen=True):
    """A drawing of both runs, each from its own start.  `paths`: of the first and the second run."""

    title: str  # what is drawn
    top: str  # the highest value, as text
    span: str  # the time that it is wide, as text
    paths: tuple[str, str]


class Comparison(msgspec.Struct, frozen=True):
    """What `stallguard report --compare` shows."""

    schema: int
    runs: tuple[str, str]  # their ids
    commands: tuple[str, str]  # what they ran
    summary: str  # the difference that matters most, as a sentence
    rows: list[ComparedRow]  # how they ended, their time, their progress
    settings: list[ComparedRow]  # commands, settings and versions that differ
    incidents: tuple[list[str], list[str]]  # of each run, in sentences
    charts: list[OverlaidChart]  # what was measured of both, in one drawing each


def comparison(first: Document, second: Document) -> Comparison:
    """Return two reports compared."""
    return Comparison(
        schema=SCHEMA,
        runs=(first.run, second.run),
        commands=(one_line(" ".join(first.command)), one_line(" ".join(second.command))),
        summary=_summary(first, second),
        rows=list(_rows(first, second)),
        settings=list(_differing(first, second)),
        incidents=(_incidents(first), _incidents(second)),
        charts=[chart for key in CHARTS if (chart := _chart(key, first, second)) is not None],
    )


def _summary(first: Document, second: Document) -> str:
    paces = first.totals.rate, second.totals.rate
    shares = first.totals.effective, second.totals.effective
    pace, share = sentence("compared pace unknown", {}), sentence("compared share unknown", {})
    if paces[0] and paces[1]:
        factor = paces[1] / paces[0]
        key = "compared pace same" if abs(factor - 1) < SAME else "compared pace"
        pace = sentence(key, {"factor": f"{factor:.3g}"})
    if shares[0] is not None and shares[1] is not None:
        facts = {"first": messages.percent(shares[0]), "second": messages.percent(shares[1])}
        share = sentence("compared share", facts)
    return prose(sentence("compared", {"pace": pace, "share": share}))


def _rows(first: Document, second: Document) -> Iterator[ComparedRow]:
    def numbers(
        name: str, field: str, text: Callable[[float], str] = "{:.0f}".format, changed: Changed = change
    ) -> Iterator[ComparedRow]:
        values: list[float | None] = [getattr(made.totals, field) for made in (first, second)]
        if values != [None, None]:
            shown = [NOTHING if one is None else text(one) for one in values]
            yield ComparedRow(name, shown[0], shown[1], changed(*values))

    yield ComparedRow("outcome", first.first.badge, second.first.badge)
    yield from numbers("effective training", "effective", messages.percent, points)
    yield from numbers("time in all", "seconds", duration)
    for name in CATEGORIES:
        spent: tuple[float, float] = tuple(getattr(made.totals.spent, name) for made in (first, second))
        if max(spent) >= labels.LONG:
            yield ComparedRow(messages.category(name), duration(spent[0]), duration(spent[1]), change(*spent))
    yield from numbers("batches a second", "rate", "{:.3g}".format)
    yield from numbers("batches", "batches")
    yield from numbers("epoch", "epoch")
    losses = [loss_words(made.totals.loss, made.totals.loss_not_finite) for made in (first, second)]
    if any(losses):
        moved = change(first.totals.loss, second.totals.loss)
        yield ComparedRow("last loss", losses[0] or NOTHING, losses[1] or NOTHING, moved)
    for name in ("stalls", "crashes", "restarts"):
        yield from numbers(name, name)
    yield from numbers("trained twice", "repeated")


def change(first: float | None, second: float | None) -> str:
    """Return by how much a number changed, in percent of the first; empty if that says nothing."""
    if not first or second is None:
        return ""
    relative = (second - first) / abs(first)
    return "same" if abs(relative) < SAME else f"{relative:+.0%}".replace("%", " %")


def points(first: float | None, second: float | None) -> str:
    """Return by how much a share, 0..1, changed, in percentage points of what is shown; empty if one is not known."""
    if first is None or second is None:
        return ""
    shown = [float(messages.percent(share).removesuffix(" %")) for share in (first, second)]
    difference = round(shown[1] - shown[0], 1)
    return f"{difference:+g} points" if difference else "same"


def _differing(first: Document, second: Document) -> Iterator[ComparedRow]:
    if first.command != second.command:
        yield ComparedRow("command", *(one_line(" ".join(one.command)) for one in (first, second)))
    if first.cwd != second.cwd:
        yield ComparedRow("directory", one_line(first.cwd), one_line(second.cwd))
    yield from _unlike(first.settings, second.settings, "default")
    yield from _unlike(first.versions, second.versions, NOTHING)


def _unlike(first: Mapping[str, str], second: Mapping[str, str], absent: str) -> Iterator[ComparedRow]:
    for name in sorted({*first, *second}):
        one, other = first.get(name, absent), second.get(name, absent)
        if one != other:
            yield ComparedRow(name, one, other)


def _incidents(made: Document) -> list[str]:
    return [
        f"{labels.name(*equal)}, {labels.summary(*equal)}: {equal[0].headline}"
        + (f" {equal[0].where}" if equal[0].where else "")
        for equal in labels.alike(made.incidents)
    ]


def _chart(key: str, first: Document, second: Document) -> OverlaidChart | None:
    def panel(made: Document) -> Panel | None:
        return next((panel for panel in made.timeline.panels if panel.key == key), None)

    one, other = panel(first), panel(second)
    if one is None or other is None:
        return None
    seconds = max(first.timeline.seconds, second.timeline.seconds)
    lines: list[svg_chart.Line] = [
        (first.timeline.times, one.series[0].values), (second.timeline.times, other.series[0].values),
    ]  # fmt: skip
    paths, top = svg_chart.overlaid(one, lines, seconds)
    title = one.title if len(one.series) == 1 else f"{one.title}, {one.series[0].name}"
    return OverlaidChart(title, labels.quantity(top, one.unit), duration(seconds), (paths[0], paths[1]))
