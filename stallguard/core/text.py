"""Numbers in readable form, and the short words for phases and ends.

Pure, and cheap to import: lists and prompts must not import the rest of the core.
"""

from __future__ import annotations

WHILE = {
    "step": "inside a training step",
    "between": "between two steps",
    "input": "waiting for input",
    "tracing": "while a graph is traced",
    "first run": "in the first run of a graph",
    "epoch start": "at the start of an epoch",
    "epoch end": "at the end of an epoch",
    "validation": "in validation",
    "prediction": "in prediction",
    "checkpoint": "while saving",
    "importing": "before the first batch",
    "idle": "outside of training",
    "finishing": "after the training, before the process ended",
    "named": "in a phase that the script named",
}
HOW = {
    "ended": "came to its end",
    "failed": "ended by an error",
    "vanished": "was killed, or crashed",
    "replaced": "replaced itself by another program",
    "exited": "ended with its attempt",
}
STEPS = {
    "s": ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us")),
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "share": ((0.01, "%"),),
    "watts": ((1.0, "W"),),
}


DIGITS = 20  # of a number of 64 bits


def whole_number(text: str | bytes | None) -> int | None:
    """Return a number in plain decimal digits, of 64 bits at most; None for anything else.

    For text from outside: `int` raises ValueError from 4301 digits on, and `str.isdecimal` takes other scripts' digits.
    """
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def duration(seconds: float) -> str:
    """Return seconds in readable form: 0.4 s, 12 s, 3 min 5 s, 7 h 30 min."""
    if seconds < 9.95:  # noqa: PLR2004 - below ten, one decimal is worth reading
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:  # noqa: PLR2004
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:  # noqa: PLR2004
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 stall, 2 stalls."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def count(number: int, one: str, many: str) -> str:
    """Return a number of things, in groups of three digits."""
    return f"{number:,} {one if number == 1 else many}".replace(",", "\u202f")


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit, in the size that reads best."""
    steps = STEPS.get(unit, ((1.0, ""),))
    size, name = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{value / size:.3g} {name}".rstrip()


def wrapped(text: str, width: int | None, indent: str = "  ") -> str:
    """Return a line broken between words for `width` columns, `indent` before the rest; as it is for None.

    A word that is longer than a line, such as a path, stays whole: it can be copied then.
    """
    if width is None or len(text) <= width:
        return text
    import textwrap

    lead = text[: len(text) - len(text.lstrip())]
    return "\n".join(
        textwrap.wrap(
            text,
            max(width, 20),
            subsequent_indent=lead + indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    )


def cut(text: str, most: int) -> str:
    """Return `text`, or its first `most` - 1 characters and an ellipsis if it has more than `most`."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
