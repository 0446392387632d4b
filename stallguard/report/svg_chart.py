"""A panel as a small drawing: what is printed, and what is seen where no script runs, as in a mail's preview.

Pure: numbers in, the text of SVG paths out.  Must not escape anything: only numbers go in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from stallguard.report.timeline import Panel, Timeline

WIDTH, HEIGHT = 1000, 100  # of the drawing, stretched to its place
COLUMNS = 250  # points of a line at most
DECADES = 1.3  # from which span on a panel that may be logarithmic is


class Chart(msgspec.Struct, frozen=True):
    """`paths`: of the series, in order; `bands`: (x, width) of silences; `top`: the highest value."""

    paths: list[str]
    bands: list[tuple[float, float]]
    top: float
    log: bool


def chart(panel: Panel, timeline: Timeline) -> Chart:
    """Return the drawing of a panel."""
    values = [value for series in panel.series for value in series.values if value is not None]
    low, top = min(values, default=0.0), max(values, default=0.0)
    log = is_log(panel, low, top)
    scale = _log(low, top) if log else _linear(low if panel.key == "loss" else min(low, 0.0), top)
    silences = [band for band in timeline.bands if band.kind == "silence"]
    breaks = [(band.began + band.ended) / 2 for band in silences] if panel.key == "batch" else []
    lines = [thinned(timeline.times, series.values) for series in panel.series]
    return Chart(
        paths=[
            "".join(_path(part, timeline.seconds, scale) for part in _parts(line, breaks)) for line in lines
        ],
        bands=[
            (_x(band.began, timeline.seconds), max(1.0, _x(band.ended - band.began, timeline.seconds)))
            for band in silences
        ],
        top=top,
        log=log,
    )


def is_log(panel: Panel, low: float, top: float) -> bool:
    """Return whether a logarithmic scale shows more."""
    return panel.log and low > 0 and math.log10(top / low) > DECADES


def _log(low: float, top: float) -> tuple[bool, float, float]:
    return True, math.log(low), math.log(top)


def _linear(low: float, top: float) -> tuple[bool, float, float]:
    return False, low, top


def thinned(times: Sequence[float], values: Sequence[float | None]) -> list[tuple[float, float]]:
    """Return every so many points of a line, those with a value."""
    known = [(at, value) for at, value in zip(times, values, strict=True) if value is not None]
    step = max(1, math.ceil(len(known) / COLUMNS))
    cells = groupby(enumerate(known), key=lambda pair: pair[0] // step)
    return [max((point for _, point in cell), key=lambda point: point[1]) for _, cell in cells]


def _parts(
    line: Sequence[tuple[float, float]], breaks: Sequence[float]
) -> Iterable[Sequence[tuple[float, float]]]:
    """Yield a line in parts, none of which crosses one of `breaks`: a silence has no batch time."""
    numbered = groupby(line, key=lambda point: sum(at < point[0] for at in breaks))
    return [list(part) for _, part in numbered]


def _x(at: float, seconds: float) -> float:
    return round(at / max(seconds, 1e-9) * WIDTH, 1)


def _path(line: Sequence[tuple[float, float]], seconds: float, scale: tuple[bool, float, float]) -> str:
    log, low, top = scale
    span = (top - low) or 1.0
    points = [
        f"{_x(at, seconds):g},{HEIGHT - ((math.log(value) if log else value) - low) / span * HEIGHT:.1f}"
        for at, value in line
    ]
    return f"M{'L'.join(points)}" if points else ""
