"""The report of a run, two runs compared, and the profile of a run, on a terminal through rich.

Lays out a document.  Foreign text travels as Text objects, never as markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stallguard.core.text import count, duration, per_second, sparkline
from stallguard.report import flame_graph, labels
from stallguard.report.incidents import CRASH
from stallguard.report.narrative import DOES, prose, sentence
from stallguard.report.sanitize import one_line

if TYPE_CHECKING:  # a profile must not wait for the arrays of a report
    from stallguard.report.comparison import ComparedRow, Comparison
    from stallguard.report.document import Document, IncidentText
    from stallguard.report.sampled_stacks import LineTime, ProfileDocument, TrainingProfile
    from stallguard.report.timeline import Series, Timeline

ACCENT, DIM, HEAD = "dark_orange3", "dim", "bold"
MARKS = {"stall": "!", "crash": "x", "restart": ">", "recovered": "<"}
PEAK = 1.5  # times the usual throughput: a few cells above it must not flatten all others
CHART = 72  # columns at most
OUTPUT = 12  # lines of the last output: a traceback's end
ADVICE = 2  # pieces for each bottleneck
NUMBERS = ("time", "share", "calls")  # columns of a profile
LINES = 12  # of each role in a profile
LEAST = 0.005  # share from which on a line of a profile is shown
SIDE_BY_SIDE = "Threads run side by side, so shares of different threads do not add up to 100 %."


def blocks(document: Document, width: int) -> Iterator[RenderableType]:
    """Yield the parts of the report from the top down."""
    yield Text(one_line(" ".join(document.command)) or document.run, style=HEAD)
    yield Text(" · ".join(filter(None, (document.began, document.zone, document.run))), style=DIM)
    yield from (_heading(text, "") for text in document.story)
    yield from chart(document.timeline, min(CHART, width - 4))
    for equal in labels.alike(document.incidents):
        yield from _trouble(equal)
    if document.bottlenecks:
        yield _heading("What made it slow")
        for slow in document.bottlenecks:
            yield _point(slow.headline, ">", ACCENT)
            yield from (_indented(_point(text, "+")) for text in slow.evidence)
            yield from (
                _indented(_point("\n".join(filter(None, labels.with_code(text)))), 4) for text in slow.advice[:ADVICE]
            )
    if document.incidents and document.incidents[-1].kind == CRASH and document.output:
        yield _heading("The last output")
        yield from (_indented(Text(line, style=DIM)) for line in document.output[-OUTPUT:])
    if document.trainings:
        yield _heading("The trainings")
        grid = _grid(labels.TRAINING)
        for row in labels.trainings(document):
            grid.add_row(*map(Text, row))
        yield _indented(grid)
    yield _heading("In numbers")
    yield _indented(_table(labels.figures(document.totals)))
    if document.advice or document.beyond:
        yield _heading("What helps")
        yield from (_point("\n".join(filter(None, labels.with_code(text)))) for text in document.advice)
        yield from (_point(prose(text)) for text in document.beyond)
    yield Text("")
    yield Text(labels.secrets(document), style=DIM)


def comparison(compared: Comparison) -> Iterator[RenderableType]:
    """Yield two runs side by side."""
    yield Text(" and ".join(compared.runs), style=HEAD)
    yield _heading(compared.summary, "")
    yield _heading("In numbers")
    yield _compared(compared.rows)
    yield _heading("What they were started with")
    if compared.settings:
        yield _compared(compared.settings)
    else:
        yield _indented(Text("command, directory, settings and versions are the same"))
    for run, incidents in zip(compared.runs, compared.incidents, strict=True):
        yield _heading(f"Incidents of {run}")
        yield from (_point(text, "!", ACCENT) for text in incidents or ["none"])


def _compared(rows: Sequence[ComparedRow]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=DIM, no_wrap=True)
    for _ in range(3):
        grid.add_column(overflow="fold")
    grid.add_row("", *(Text(name, style=DIM) for name in ("first", "second", "change")))
    for row in rows:
        grid.add_row(*map(Text, (row.name, row.first, row.second, row.change)))
    return _indented(grid)


def _grid(names: Sequence[str]) -> Table:
    """Return a table without lines, with a dim head."""
    table = Table.grid(padding=(0, 2))
    for name in names:
        table.add_column(justify="right" if name in NUMBERS else "left", overflow="fold")
    table.add_row(*(Text(name, style=DIM) for name in names))
    return table


def _heading(text: str, style: str = HEAD, by: int = 0) -> RenderableType:
    return Padding(Text(text, style=style), (1, 0, 0, by), expand=False)


def _indented(block: RenderableType, by: int = 2) -> RenderableType:
    return Padding(block, (0, 0, 0, by), expand=False)


def _point(text: str, sign: str = "-", style: str = "") -> RenderableType:
    return _indented(_table([(sign, text)], style=style))


def _table(rows: Sequence[tuple[str, str]], style: str = "") -> Table:
    """Return two columns without lines; the second wraps under itself."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=style or DIM, no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


# ---- the timeline as one line of blocks ------------------------------------------------------------------------


def chart(timeline: Timeline, columns: int) -> Iterator[RenderableType]:
    """Yield the throughput as a line of blocks, and below it what happened; nothing where it is not known."""
    rate = next((panel for panel in timeline.panels if panel.key == "rate"), None)
    if rate is None or columns < 10:  # noqa: PLR2004 - narrower says nothing
        return
    columns = min(columns, len(timeline.times))
    cells = resampled(rate.series[0], timeline, columns)
    moving = [cell for cell in cells if cell]
    top = min(max(moving, default=0.0), PEAK * median(moving or [0.0]))
    yield _heading(f"Throughput; a full block is {per_second(top)} or more")
    blocks = sparkline([None if cell is None else min(cell, top) for cell in cells], columns, from_zero=True)
    line = ("_" if cell == 0 else block for cell, block in zip(cells, blocks, strict=True))
    yield _indented(Text("".join(line)))
    marks = [" "] * columns
    for mark in timeline.marks:
        column = min(columns - 1, int(mark.at / max(timeline.seconds, 1e-9) * columns))
        free = next((place for place in range(column, columns) if marks[place] == " "), None)
        if mark.kind in MARKS and free is not None:
            marks[free] = MARKS[mark.kind]
    if any(mark != " " for mark in marks):
        yield _indented(Text("".join(marks), style=ACCENT))
        yield _indented(Text("! stall   x crash   > next attempt   < recovered", style=DIM))


def resampled(series: Series, timeline: Timeline, columns: int) -> list[float | None]:
    """Return the means of a series in `columns` equal spans of the timeline."""
    sums, counts = [0.0] * columns, [0] * columns
    for at, value in zip(timeline.times, series.values, strict=True):
        if value is not None:
            column = min(columns - 1, int(at / max(timeline.seconds, 1e-9) * columns))
            sums[column] += value
            counts[column] += 1
    return [total / number if number else None for total, number in zip(sums, counts, strict=True)]


# ---- one incident -------------------------------------------------------------------------------------------------


def _trouble(equal: Sequence[IncidentText]) -> Iterator[RenderableType]:
    """Yield one incident; of several that are equal, each in a line, and then the first of them."""
    trouble = equal[0]
    title = Text(f"{labels.name(*equal)}  ", style=f"{HEAD} {ACCENT}")
    yield Padding(title.append(labels.summary(*equal), DIM), (1, 0, 0, 0), expand=False)
    if len(equal) > 1:
        yield _indented(_table([(labels.name(one), labels.summary(one)) for one in equal]), 4)
    if trouble.name:
        yield _indented(Text(trouble.name, HEAD).append(f"  {trouble.seen}", DIM))
    yield _indented(Text(trouble.headline))
    if trouble.where:
        yield _indented(Text("> ", style=ACCENT).append(trouble.where, HEAD))
    if trouble.before:
        yield _indented(Text("where its time went before it", style=DIM))
        yield from (_indented(Text(place, style=DIM), 4) for place in trouble.before)
    if did := labels.device(trouble):
        yield _indented(Text(did))
    for cause in trouble.causes:
        yield _indented(Text(cause.title).append(f"  {cause.word} ({cause.confidence:.0%})", DIM))
        yield from (_indented(_point(text, "+")) for text in cause.evidence)
        yield from (_indented(_point(text, "-")) for text in cause.against)
    yield from (_indented(_point(prose(labels.known_words(one)), "=", ACCENT)) for one in trouble.known)
    if trouble.same_as:
        yield _indented(Text(sentence("same stacks", {"number": str(trouble.same_as)}), style=DIM))
    evidence = None if trouble.same_as else trouble.evidence
    for group in evidence.stacks if evidence else ():
        yield _indented(Text(labels.threads(group), style=DIM))
        for segment in group.segments:
            if segment.package:
                yield _indented(Text(labels.calls(segment), style=DIM), 6)
            else:
                own = (Text("> ", style=ACCENT).append(frame, HEAD) for frame in segment.frames)
                yield from (_indented(line, 4) for line in own)
    if evidence and (why := labels.unseen(trouble)):
        yield _indented(Text(why, style=DIM))
    if trouble.announced:
        yield _indented(Text("what was done", style=DIM))
        yield _indented(_table([(line.clock, line.text) for line in trouble.announced]), 4)


# ---- the profile of a run -----------------------------------------------------------------------------------------


def profile(document: ProfileDocument) -> Iterator[RenderableType]:
    """Yield the parts of the profile from the top down."""
    yield Text(one_line(" ".join(document.command)) or document.run, style=HEAD)
    yield Text(f"{document.run} · {document.state}", style=DIM)
    for note in document.notes:
        yield Text(note, style=ACCENT)
    for one in document.trainings:
        yield from _training(one)
    if any(one.feeders for one in document.trainings):
        yield _heading(SIDE_BY_SIDE, DIM)


def _training(one: TrainingProfile) -> Iterator[RenderableType]:
    title = one_line(one.title)
    yield _heading(f"{title[:1].upper()}{title[1:]}" if title else "Where the time went")
    older = "; from the journal, because its file of samples is not readable" if one.from_journal else ""
    yield Text(f"{one.coverage}{older}", style=DIM)
    yield _heading("By phase", "", 2)
    phases = _grid(("time", "share", "phase"))
    for phase in one.phases:
        phases.add_row(duration(phase.seconds), percent(phase.share), flame_graph.phase_name(phase.phase))
    yield _indented(phases, 4)
    for name, lines in ((flame_graph.role_name("training"), one.training), (flame_graph.FEEDERS, one.feeders)):
        if lines:
            yield _heading(f"By line of the script: {name}", "", 2)
            yield _indented(_lines(lines), 4)
    if one.functions:
        yield _heading("Functions of the script inside graphs, each call measured", "", 2)
        grid = _grid(("time", "share", "calls", "line", "for"))
        for each in one.functions:
            calls = count(each.calls, "", "").strip()
            where = Text(one_line(each.where), ACCENT)
            grid.add_row(duration(each.seconds), percent(each.share), calls, where, one_line(each.purpose))
        yield _indented(grid, 4)


def _lines(lines: Sequence[LineTime]) -> Table:
    shown = [one for place, one in enumerate(lines) if place < LINES and (one.share >= LEAST or not place)]
    grid = _grid(("time", "share", "line", "what it does", "phase"))
    for one in shown:
        around = f"calls {short(one.calls)}" if one.calls else ""
        around = around or (f"called by {short(one.called_by)}" if one.called_by else "")
        words = Text(DOES.get(one.does, "")).append(f"\n{one_line(around)}" if around else "", DIM)
        where = Text(one_line(one.where), ACCENT) if one.where else Text("no line of the script", DIM)
        grid.add_row(duration(one.seconds), percent(one.share), where, words, flame_graph.phase_name(one.phase))
    rest = lines[len(shown) :]
    if rest:
        seconds, share = sum(one.seconds for one in rest), sum(one.share for one in rest)
        grid.add_row(duration(seconds), percent(share), Text(f"{len(rest)} more", DIM), "", "")
    return grid


def short(function: str) -> str:
    """Return a function of a library by its package, module and name: "keras: trainer.fit"."""
    package, *inside = function.split(".")
    return f"{package}: {'.'.join(inside[-2:])}" if len(inside) > 2 else function  # noqa: PLR2004 - it is short


def percent(share: float) -> str:
    """Return a share as a user reads it: 46 %, 0.4 %."""
    return f"{share * 100:.0f} %" if share >= 0.1 or not share else f"{share * 100:.1f} %"  # noqa: PLR2004
