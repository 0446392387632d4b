"""A panel as a small drawing: what is printed, and what is seen where no script runs, as in a mail's preview.

Pure: numbers in, the text of SVG paths out.  Must not escape anything: only numbers go in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby

import msgspec

from stallguard.report.timeline import Panel, Timeline

WIDTH, HEIGHT = 1000, 100  # of the drawing, stretched to its place
COLUMNS = 250  # points of a line at most
ABOVE = {"redone": 1, "asleep": 2, "silence": 3}  # kinds of bands that are drawn over the phases
AGAIN = 65  # where the lower third begins
DECADES = 1.3  # from which span on a panel that may be logarithmic is

Line = tuple[Sequence[float], Sequence[float | None]]  # times and values


class Chart(msgspec.Struct, frozen=True):
    """`paths`: of the series, in order; `bands`: (x, width) of silences; `top`: the highest value."""

    paths: list[str]
    bands: list[tuple[float, float]]
    top: float
    log: bool


def chart(panel: Panel, timeline: Timeline) -> Chart:
    """Return the drawing of a panel."""
    lines = [(timeline.times, series.values) for series in panel.series]
    paths, top = overlaid(panel, lines, timeline.seconds)
    silences = [band for band in timeline.bands if band.kind == "silence"]
    bands = [
        (_x(band.began, timeline.seconds), max(1.0, _x(band.ended - band.began, timeline.seconds))) for band in silences
    ]
    low = min((value for _, values in lines for value in values if value is not None), default=0.0)
    return Chart(paths=paths, bands=bands, top=top, log=is_log(panel, low, top))


def lane(timeline: Timeline) -> list[tuple[str, float, int, float]]:
    """Return the bands of a timeline as (kind, x, y, width), those above others last; of a column one of each kind.

    Batches that are trained again take the lower third, so that the phase above it is seen.
    """
    drawn, seen = list[tuple[str, float, int, float]](), set[tuple[str, int]]()
    for band in sorted(timeline.bands, key=lambda band: ABOVE.get(band.kind, 0)):
        x, width = _x(band.began, timeline.seconds), _x(band.ended - band.began, timeline.seconds)
        if width >= 1 or (band.kind, int(x)) not in seen:
            drawn.append((band.kind, x, AGAIN if band.kind == "redone" else 0, max(1.0, width)))
            seen.add((band.kind, int(x)))
    return drawn


def overlaid(panel: Panel, lines: Sequence[Line], seconds: float) -> tuple[list[str], float]:
    """Return lines with one scale as paths, and their highest value.

    `panel`: how they are drawn; `lines`: the times and values of each; `seconds`: the width of the drawing.
    """
    values = [value for _, line in lines for value in line if value is not None]
    low, top = min(values, default=0.0), max(values, default=0.0)
    log = is_log(panel, low, top)
    lowest = low if log or panel.key == "loss" else min(low, 0.0)
    scaled: Callable[[float], float] = math.log if log else float
    floor = scaled(lowest)
    span = (scaled(top) - floor) or 1.0
    paths = []
    for times, line in lines:
        path = ""
        for part in thinned(times, line):
            places = (
                f"{_x(at, seconds):g},{HEIGHT - (scaled(value) - floor) / span * HEIGHT:.1f}" for at, value in part
            )
            path += f"M{'L'.join(places)}"
        paths.append(path)
    return paths, top


def is_log(panel: Panel, low: float, top: float) -> bool:
    """Return whether a logarithmic scale shows more."""
    return panel.log and low > 0 and math.log10(top / low) > DECADES


def thinned(times: Sequence[float], values: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """Return the parts of a line that have values, and of each the highest of every so many points."""
    step = max(1, math.ceil(sum(value is not None for value in values) / COLUMNS))
    parts = []
    for known, part in groupby(zip(times, values, strict=True), key=lambda point: point[1] is not None):
        if known:
            cells = groupby(enumerate(part), key=lambda pair: pair[0] // step)
            parts.append(
                [max(((at, value or 0.0) for _, (at, value) in cell), key=lambda point: point[1]) for _, cell in cells]
            )
    return parts


def _x(at: float, seconds: float) -> float:
    return round(at / max(seconds, 1e-9) * WIDTH, 1)
