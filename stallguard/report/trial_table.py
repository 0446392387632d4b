"""The trials of `find-batch` and `compare` as a table, and what follows from a comparison in words.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stallguard.core import trials
from stallguard.core.text import quantity
from stallguard.core.trials import CROWDED, Choice, Trial

UNKNOWN = "?"
Cell = Callable[[Trial], str]


def _figure(value: float) -> str:
    """Return a number with three digits that count, as 12 300 or 1.23."""
    if value < 999.5:  # noqa: PLR2004 - above it, the third digit is not the last
        return f"{value:.3g}"
    return f"{float(f'{value:.3g}'):,.0f}".replace(",", "\u202f")


def _rate(trial: Trial) -> str:
    uncertain = trials.uncertainty(trial)
    return f"{_figure(trial.rate)} ± {uncertain / trial.rate:.0%}" if trial.rate and uncertain else ""


def _quantity(value: float | None, unit: str) -> str:
    return "" if value is None else quantity(value, unit)


# The first three columns are always there; each other one if a trial has a value for it.
COLUMNS: dict[str, Cell] = {
    "batches/s": _rate,
    "rows/s": lambda trial: "" if trial.row_rate is None else _figure(trial.row_rate),
    "memory": lambda trial: _quantity(trial.memory, "bytes"),
    "cores": lambda trial: "" if trial.cores is None else f"{trial.cores:.1f}",
    "GPU": lambda trial: "" if trial.gpu is None else f"{trial.gpu:.0%}",
    "GPU memory": lambda trial: _quantity(trial.gpu_memory, "bytes"),
    "GPU energy": lambda trial: "" if trial.joules is None else f"{trial.joules:.3g} J/batch",
}
ALWAYS = 3


def table(named: str, rows: Sequence[tuple[str, Trial]], good: str) -> list[str]:
    """Return the trials as lines.

    `named`: the title of the first column; `rows`: its cells, each with a trial; `good`: the outcome of one without
    trouble.
    """
    columns = [
        (title, cells)
        for number, (title, cell) in enumerate(COLUMNS.items())
        if any(cells := [cell(trial) for _, trial in rows]) or number < ALWAYS
    ]
    lines = [[named, *(title for title, _ in columns), "outcome"]]
    for index, (label, trial) in enumerate(rows):
        outcome = "; ".join(filter(None, (trial.trouble or good, trial.note)))
        lines.append([label, *(cells[index] or UNKNOWN for _, cells in columns), outcome])
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns) + 1)]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    ]


def choice_words(labels: Sequence[str], trials: Sequence[Trial], choice: Choice) -> list[str]:
    """Return what is chosen and why, as lines."""
    name, unit = labels[choice.chosen], "rows" if choice.by_rows else "batches"
    trial = trials[choice.chosen]
    speed = (trial.row_rate if choice.by_rows else trial.rate) or 0.0
    line = f"choose {name}: {_figure(speed)} {unit}/s"
    if choice.next is not None:
        line += f", {choice.times:.2g} times as fast as {labels[choice.next]}"
        line += " (the next)" if len(trials) > len(choice.equal) + 2 else ""
    lines = [line]
    if choice.equal:
        others = ", ".join(labels[index] for index in choice.equal)
        verb = "is" if len(choice.equal) == 1 else "are"
        lines.append(f"{others} {verb} as fast within what is uncertain; {WHY_KEPT[choice.reason].format(name=name)}")
        if any(trials[index].contention >= CROWDED for index in (choice.chosen, *choice.equal)):
            lines.append("measure again on an idle machine to see smaller differences")
    failed = [label for label, one in zip(labels, trials, strict=True) if one.trouble or not one.rate]
    if failed:
        lines.append(f"not compared: {', '.join(failed)}")
    return lines


WHY_KEPT = {
    trials.FASTER: "{name} is kept",
    trials.FEWER_CHANGES: "{name} is kept, because it changes less of what the script does by itself",
    trials.LESS_MEMORY: "{name} is kept, because it needs less memory",
    trials.FEWER_ROWS: "{name} is kept, because its batch is smaller",
    trials.FIRST: "{name} is kept, because it was named first",
}
