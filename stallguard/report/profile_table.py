"""Where the time of a run went, on a terminal, through rich; plain if colours are off.

Lays out a profile.  Foreign text travels as Text objects, never as markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stallguard.core.text import count, duration
from stallguard.report import flame_graph
from stallguard.report.narrative import DOES
from stallguard.report.sampled_stacks import LineTime, ProfileDocument, TrainingProfile
from stallguard.report.sanitize import one_line

ACCENT, DIM, HEAD = "dark_orange3", "dim", "bold"
LINES = 12  # of each role
LEAST = 0.005  # share from which on a line is shown
SIDE_BY_SIDE = "Threads run side by side, so shares of different threads do not add up to 100 %."


def blocks(document: ProfileDocument) -> Iterator[RenderableType]:
    """Yield the parts of the profile from the top down."""
    yield Text(one_line(" ".join(document.command)) or document.run, style=HEAD)
    yield Text(f"{document.run} · {document.state}", style=DIM)
    for note in document.notes:
        yield Text(note, style=ACCENT)
    for one in document.trainings:
        yield from _training(one)
    if any(one.feeders for one in document.trainings):
        yield Padding(Text(SIDE_BY_SIDE, style=DIM), (1, 0, 0, 0), expand=False)


def _training(one: TrainingProfile) -> Iterator[RenderableType]:
    title = one_line(one.title)
    yield Padding(
        Text(f"{title[:1].upper()}{title[1:]}" if title else "Where the time went", style=HEAD), (1, 0, 0, 0)
    )
    older = "; from the journal, because its file of samples is not readable" if one.from_journal else ""
    yield Text(f"{one.coverage}{older}", style=DIM)
    yield _heading("By phase")
    phases = _grid(("time", "share", "phase"))
    for phase in one.phases:
        phases.add_row(duration(phase.seconds), percent(phase.share), flame_graph.phase_name(phase.phase))
    yield _indented(phases)
    for name, lines in (
        (flame_graph.role_name("training"), one.training),
        (flame_graph.FEEDERS, one.feeders),
    ):
        if lines:
            yield _heading(f"By line of the script: {name}")
            yield _indented(_lines(lines))
    if one.functions:
        yield _heading("Functions of the script inside graphs, each call measured")
        grid = _grid(("time", "share", "calls", "line", "for"))
        for each in one.functions:
            calls = count(each.calls, "", "").strip()
            where = Text(one_line(each.where), ACCENT)
            grid.add_row(duration(each.seconds), percent(each.share), calls, where, one_line(each.purpose))
        yield _indented(grid)


def _lines(lines: Sequence[LineTime]) -> Table:
    shown = [one for place, one in enumerate(lines) if place < LINES and (one.share >= LEAST or not place)]
    grid = _grid(("time", "share", "line", "what it does", "phase"))
    for one in shown:
        around = f"calls {short(one.calls)}" if one.calls else ""
        around = around or (f"called by {short(one.called_by)}" if one.called_by else "")
        words = Text(DOES.get(one.does, "")).append(f"\n{one_line(around)}" if around else "", DIM)
        where = Text(one_line(one.where), ACCENT) if one.where else Text("no line of the script", DIM)
        grid.add_row(
            duration(one.seconds), percent(one.share), where, words, flame_graph.phase_name(one.phase)
        )
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


def _grid(names: Sequence[str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name in names:
        table.add_column(justify="right" if name in ("time", "share", "calls") else "left", overflow="fold")
    table.add_row(*(Text(name, style=DIM) for name in names))
    return table


def _heading(text: str) -> RenderableType:
    return Padding(Text(text), (1, 0, 0, 2), expand=False)


def _indented(block: RenderableType) -> RenderableType:
    return Padding(block, (0, 0, 0, 4), expand=False)
