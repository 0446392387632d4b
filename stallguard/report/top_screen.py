"""The screen of `stallguard top`: what is shown of the runs, and what a key does.

Pure: snapshots, keys and a size in; lines and orders out.  Must not ask a run or write to a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from stallguard.core.text import cut, duration, loss_words, quantity, sparkline
from stallguard.report import status_rows
from stallguard.report.sanitize import plain

KEPT = 600  # samples of a run: ten minutes at one a second
NAME, GAP = 10, 2  # columns of a row's name, and between it and the text
VALUE = 14  # columns at least for the present value beside a curve
CURVE = 60  # columns of a curve at most
HINT = "? help   q quit   m pause stall handling   d dump   l runs"
HELP = (
    ("q", "quit; the training goes on"),
    ("m", "pause stall handling for an hour, or end the pause"),
    ("d", "keep a dump of the stacks as evidence"),
    ("Tab, n", "the next live run"),
    ("l", "the list of live runs: up, down or a number chooses, Enter shows"),
    ("?", "this help, or back"),
)
QUIT, DUMP, MUTE, UNMUTE = "quit", "dump", "mute", "unmute"  # orders
RUN, RUNS, KEYS = "run", "runs", "keys"  # views
UP, DOWN, ENTER, ESCAPE, TAB = "up", "down", "enter", "escape", "tab"  # keys that are no character
_SEQUENCES = {"\x1b[A": UP, "\x1bOA": UP, "\x1b[B": DOWN, "\x1bOB": DOWN, "\x1b": ESCAPE, "\r": ENTER, "\n": ENTER,
              "\t": TAB}  # fmt: skip
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b|.", re.DOTALL)
# Rows in the order in which they are left out if there is no room, the first to go first.
SPARE = ("last words", "processor", "time", "slow", "effective", "batches", "doing", "crashes", "stalls")

Snapshot = Mapping[str, Any]


class Sample(msgspec.Struct, frozen=True):
    """What the curves are made of, at one instant.  None: not known."""

    pace: float | None = None  # batches a second
    loss: float | None = None
    cpu: float | None = None  # cores
    memory: float | None = None  # bytes
    gpu: float | None = None  # 0..1


class View(msgspec.Struct, frozen=True):
    """What the user looks at.  `marked`: the run that is chosen in the list."""

    run: str
    shown: str = RUN
    marked: str = ""


class StyledLine(msgspec.Struct, frozen=True):
    """A line of the screen.  `style`: of rich; "" for plain text."""

    text: str
    style: str = ""


def sample(snapshot: Snapshot) -> Sample:
    """Return the values of a snapshot that the curves show."""
    rates, heartbeat = snapshot.get("rates", {}), snapshot.get("progress") or {}
    return Sample(
        pace=rates.get("batches"),
        loss=heartbeat.get("loss"),
        cpu=rates.get("cpu"),
        memory=status_rows.footprint_of(snapshot),
        gpu=snapshot.get("readings", {}).get("device", {}).get("utilisation"),
    )


def keys(typed: str) -> list[str]:
    """Return the keys in what a terminal sent; unknown sequences are left out."""
    found = [_SEQUENCES.get(key, key) for key in _KEY.findall(typed)]
    return [key for key in found if key[:1] != "\x1b"]


def press(view: View, key: str, runs: Sequence[str], *, muted: bool) -> tuple[View, str]:
    """Return the view after a key, and the order that it gives for the shown run; "" for none.

    `runs`: ids of the live runs; `muted`: stall handling of the shown run is paused.
    """
    if key in ("q", "\x03", "\x04"):
        return view, QUIT
    if key == "d":
        return view, DUMP
    if key == "m":
        return view, UNMUTE if muted else MUTE
    if key in ("?", "h"):
        return replace(view, shown=RUN if view.shown == KEYS else KEYS), ""
    if key == ESCAPE:
        return replace(view, shown=RUN), ""
    if key in (TAB, "n"):
        return View(_beside(view.run, runs, 1), RUN), ""
    if key == "l":
        return replace(view, shown=RUN if view.shown == RUNS else RUNS, marked=view.run), ""
    if view.shown == RUNS:
        if key in (UP, "k"):
            return replace(view, marked=_beside(view.marked, runs, -1)), ""
        if key in (DOWN, "j"):
            return replace(view, marked=_beside(view.marked, runs, 1)), ""
        if key == ENTER:
            return View(view.marked or view.run), ""
        if key.isdecimal() and key.isascii() and 1 <= int(key) <= len(runs):
            return View(runs[int(key) - 1]), ""
    return view, ""


def _beside(run: str, runs: Sequence[str], step: int) -> str:
    if not runs:
        return run
    return runs[(runs.index(run) + step) % len(runs)] if run in runs else runs[-1]


# ---- drawing -------------------------------------------------------------------------------------------------------


def run_lines(
    title: str, rows: status_rows.Rows, snapshot: Snapshot, samples: Sequence[Sample], said: str, size: tuple[int, int]
) -> list[StyledLine]:
    """Return the screen of one run.

    `title`: its id and command; `rows`: of status_rows; `said`: the answer to the last key; `size`: columns and lines.
    """
    width, height = size
    well = status_rows.is_well(snapshot)
    curves = dict(_curves(samples, width))
    drawn = {"memory"} if "memory" in curves else set()
    drawn |= {"GPU"} if "GPU" in curves else set()
    kept = [(name, text) for name, text in rows if name not in drawn]
    bar = status_rows.silence_bar(snapshot)
    room = height - 3 - len(curves) - bool(bar)  # the title, the hint, and the answer to a key
    for spare in SPARE:
        if len(kept) <= room:
            break
        kept = [(name, text) for name, text in kept if name != spare]
    lines = [StyledLine(cut(plain(title), width), "bold")]
    for name, text in kept[: max(1, room)]:
        alarm = not well and name in ("state", "why", "next")
        lines.append(StyledLine(_row(name, text, width), "bold dark_orange3" if alarm else ""))
        if name == "silent" and bar:
            lines.append(StyledLine(_row("", bar, width), "dim" if well else "dark_orange3"))
    lines += [StyledLine(_row(name, text, width)) for name, text in curves.items()]
    return _with_feet(lines, said, size)


def list_lines(snapshots: Mapping[str, Snapshot], marked: str, said: str, size: tuple[int, int]) -> list[StyledLine]:
    """Return the screen with the live runs, `marked` among them; an empty snapshot is of a run that does not answer."""
    width, height = size
    lines = [StyledLine(cut(f"{len(snapshots)} live runs; up, down or a number chooses, Enter shows", width), "bold")]
    names = list(snapshots)
    first = max(0, min(names.index(marked) if marked in names else 0, len(names) - (height - 4)))
    for number, name in list(enumerate(names, 1))[first : first + height - 4]:
        snapshot = snapshots[name]
        pace = snapshot.get("rates", {}).get("batches")
        parts = [str(snapshot.get("state", "no answer")), f"{pace:.3g}/s" if pace is not None else ""]
        parts += [status_rows.muted(snapshot), status_rows.next_step(snapshot)]
        text = f"{'>' if name == marked else ' '} {number}  {name}  {', '.join(filter(None, parts))}"
        lines.append(StyledLine(cut(plain(text), width), "bold" if name == marked else ""))
    return _with_feet(lines, said, size)


def help_lines(said: str, size: tuple[int, int]) -> list[StyledLine]:
    """Return the screen with the keys."""
    lines = [StyledLine("Keys", "bold")]
    lines += [StyledLine(_row(key, text, size[0])) for key, text in HELP]
    return _with_feet(lines, said, size)


def _with_feet(lines: list[StyledLine], said: str, size: tuple[int, int]) -> list[StyledLine]:
    """Return the lines with the answer to the last key and the hint below them, no more than fit."""
    width, height = size
    feet = [StyledLine(cut(plain(said), width), "dim")] if said else []
    feet.append(StyledLine(cut(HINT, width), "dim"))
    return lines[: max(1, height - len(feet))] + feet


def _row(name: str, text: str, width: int) -> str:
    return cut(f"{name:<{NAME}}{' ' * GAP}{plain(text)}", width).rstrip()


def _curves(samples: Sequence[Sample], width: int) -> Iterator[tuple[str, str]]:
    """Yield a curve with its present value for each quantity that is known."""
    columns = max(8, min(CURVE, width - NAME - GAP - VALUE))
    for name, field, from_zero in (
        ("pace", "pace", True), ("loss", "loss", False), ("CPU", "cpu", True), ("memory", "memory", False),
        ("GPU", "gpu", True),
    ):  # fmt: skip
        values = [getattr(one, field) for one in samples]
        last = next((value for value in reversed(values) if value is not None), None)
        if last is not None:
            yield name, f"{sparkline(values, columns, from_zero=from_zero):<{columns}}  {_value(field, last)}"


def _value(field: str, value: float) -> str:
    if field == "memory":
        return quantity(value, "bytes")
    if field == "gpu":
        return f"{value:.0%}".replace("%", " %")
    return loss_words(value) if field == "loss" else f"{value:.3g}/s" if field == "pace" else f"{value:.2f} cores"


def over_words(run: str, state: str, seconds: float | None) -> str:
    """Return that a run is over, as the answer under another run."""
    return f"run {run} is over: {state}" + (f", after {duration(seconds)}" if seconds is not None else "")
