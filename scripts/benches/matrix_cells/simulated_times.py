"""When the documents promise that a silence of a simulated cell is noticed, judged a stall and acted upon.

Made of the tables of docs/detection.md and docs/configuration.md.  What they leave open is a range here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from matrix_cells.promises import CPU, TIMES
from matrix_cells.simulated_cells import UNTRAINED, Cell
from matrix_cells.simulated_play import Trouble

NEVER = math.inf
ACT_AFTER = 115.0  # docs/configuration.md: detector.act_after
LEARNING = 120.0  # docs/configuration.md: detector.learning, an idle processor in the first steps of a run
REMOTE = 30.0  # docs/configuration.md: detector.remote_deadlock
LOCAL = 0.4  # docs/configuration.md: detector.local
NEAR = 2.5  # docs/configuration.md: detector.near, below which nothing is suspected
GRACE = 10.0  # docs/configuration.md: detector.grace, after a sleep or a pause of stallguard
MOST_HEALTH = 8.0  # docs/configuration.md: detector.most_health


class Row(NamedTuple):
    """docs/configuration.md, the table of phases: seconds; first if enough of the phase is known, then if not."""

    deadlock: tuple[float, float]
    external: tuple[float, float]
    spin: tuple[float, float]
    working: tuple[float, float]
    paced: bool = False  # docs/detection.md: "every phase that has a known pace"


_STEP = Row((10, 60), (75, 120), (120, 300), (600, 900), paced=True)
_FIRST = Row((45, 45), (180, 300), (300, 900), (900, 900))
ROWS = {
    "importing": Row((120, 120), (1800, 1800), (NEVER, NEVER), (NEVER, NEVER)),
    "tracing": _FIRST, "first": _FIRST,
    "early": _STEP, "step": _STEP, "input": _STEP, "validation": _STEP,
    "callback": Row((20, 45), (900, 900), (900, 900), (900, 900), paced=True),
    "epoch-end": Row((20, 45), (120, 600), (300, 1800), (300, 1800), paced=True),
    "saving": Row((20, 45), (120, 600), (300, 900), (600, 900), paced=True),
    "between-fits": Row((300, 300), (1800, 1800), (NEVER, NEVER), (NEVER, NEVER)),
    "finishing": Row((60, 60), (300, 300), (NEVER, NEVER), (NEVER, NEVER)),
}  # fmt: skip
BETWEEN = ("callback", "epoch-end", "saving")  # loops of the script's own, outside of a step


class Bounds(NamedTuple):
    """Between which seconds of silence it is noticed, judged a stall and acted upon."""

    noticed: tuple[float, float]
    judged: tuple[float, float]
    acted: tuple[float, float]


def bounds(cell: Cell, one: Trouble) -> Bounds:
    """Return the bounds of a silence, `--patience` included."""
    row, remote, ours = ROWS[one.phase], cell.remote == "yes", cell.gpu in ("ours", "ours-no-power")
    what = evidence(cell, one)
    certain = what == "deadlock"
    if one.kind == "hung-device" and one.device == CPU:  # without the GPU it is silent in another way, as it comes
        every = (cell.scale * row.deadlock[0], cell.scale * max(row.working))
        return Bounds((0.0, every[1]), every, every)
    low, high = getattr(row, "working" if what == "device" else what)
    high = low if one.known else max(low, high)
    if what == "external" and not remote and one.phase in ("early", "step", "validation", "input"):
        low, high = (LOCAL * low, LOCAL * high if one.known else high)  # what earlier attempts taught can be enough
    if one.phase == "validation" and not one.known:  # the pages do not say whether these are first steps too
        high = max(high, LEARNING)
    if what == "deadlock" and remote:
        low, high = max(low, REMOTE), max(high, REMOTE)
    if what in ("deadlock", "external") and one.phase in ("early", "step", "input") and one.learning:
        low, high = max(low, LEARNING), max(high, LEARNING)
    if what == "deadlock" and cell.system == "linux" and (one.phase in UNTRAINED or one.learning):
        high = max(high, *row.external)  # it can count as idle until the timers of the library are known
    if what == "spin" and row.paced:
        low = min(low, TIMES["spin"].acted)
        high = low if one.known else high
        if one.phase in BETWEEN and one.attempt > 1:  # three to five times as long, up to the threshold of a busy one
            high = max(high, row.working[1])
    if what == "device":
        low, high = (TIMES["busy device"].evidence, high) if row.paced else (low, high)
        high = low if one.known and row.paced and cell.gpu == "ours" else high
    if cell.load == "yes":
        high *= MOST_HEALTH if what in ("spin", "working", "device") else 1.0
    acted_low, acted_high = (low, high) if certain else (max(low, ACT_AFTER), max(high, ACT_AFTER))
    if (
        certain and ours and one.kind != "lock" and one.device != CPU
    ):  # README: "after about two minutes if the device can still answer"
        acted_low, acted_high = max(low, ACT_AFTER), max(high, ACT_AFTER)
    scale = cell.scale
    judged, acted = (scale * low, scale * high), (scale * acted_low, scale * acted_high)
    later = 0.0 if one.napped < 0 else one.napped + GRACE + (50.0 if cell.pause != "unread" else 0.0)
    asleep = 45.0 if cell.pause == "asleep" else 0.0  # what comes soon after it can be a consequence
    if one.kind == "hung-device" and one.phase == "tracing":
        asleep = NEVER  # the pages do not say whether a GPU that is busy while a graph is traced is a compilation
    noticed = tuple(max(0.5 * due, NEAR * scale) for due in judged)
    if row.paced and noticed[0] > TIMES["spin"].noticed * scale:  # "noticed after a minute", a wait in a callback
        noticed = (TIMES["spin"].noticed * scale, noticed[1])
    return Bounds(
        (noticed[0], noticed[1] + later), (judged[0], judged[1] + later), (acted[0], acted[1] + later + asleep)
    )


def evidence(cell: Cell, one: Trouble) -> str:
    """Return the row of docs/detection.md's table that a silence belongs to."""
    census, remote = cell.system == "linux", cell.remote == "yes"
    if one.kind == "hung-device":
        return "device"
    if one.kind in ("spin", "held-busy"):
        return "spin"
    if one.kind in ("compile", "upload", "validates", "saves"):
        return "working"
    if one.kind == "lock":
        # A process that has not trained is judged with its launcher, which is one process more.
        alone = cell.workers == "no" and not (cell.trainings == "launcher" and one.phase in UNTRAINED)
        return "deadlock" if census or alone else "external"
    if one.kind == "deadlock":
        return "deadlock" if census and not remote else "external"
    return "deadlock" if one.kind == "held-idle" and census else "external"
