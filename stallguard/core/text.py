"""Numbers in readable form, and the short words for phases and ends.

Pure, and cheap to import: lists and prompts must not import the rest of the core.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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


# Within $'...' of a shell; the surrogates are bytes of a name that are not UTF-8 (PEP 383).
ESCAPES, BYTES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}, range(0xDC80, 0xDD00)
BLOCKS = "▁▂▃▄▅▆▇█"  # of a line of values
DIGITS = 20  # of a number of 64 bits
# A line of a traceback, and the files of which a line is not the script's own.
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
CELL = re.compile(r"cell \d+")  # the file of a notebook's cell, as storage.cells names it
# A line of IPython's traceback: "Cell In[2], line 7, in step(x)".
CELL_FRAME = re.compile(r"Cell In ?\[(?P<cell>\d+)\], line (?P<line>\d+)(?:, in (?P<function>[^\s(]+))?")
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<")


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


def loss_words(value: float | None, not_finite: str = "") -> str:
    """Return a loss with as many digits as Keras prints, "" if none is known.

    `not_finite`: the word for one that is not finite (events.Heartbeat).
    """
    if not_finite or value is None:
        return not_finite
    return f"{value:.4f}" if 1e-3 < abs(value) < 1e9 else f"{value:.4e}"  # noqa: PLR2004 - as Keras' progress bar


def far(epoch: int | None, epochs: int | None, loss: str, first_loss: float | None = None) -> str:
    """Return how far a training came, for the last notification too; "" if nothing of it is known.

    `loss`: in words, "" if it is not known.
    """
    parts = [] if epoch is None else [f"epoch {epoch}" + (f" of {epochs}" if epochs else "")]
    if loss:
        parts.append(f"loss {loss}" + ("" if first_loss is None else f" (from {loss_words(first_loss)})"))
    return ", ".join(parts)


def at(file: str, line: int | str) -> str:
    """Return a line of a file as "train.py:31", of a notebook's cell as "cell 2, line 7"."""
    return f"{file}, line {line}" if CELL.fullmatch(file) else f"{file}:{line}"


def script_place(line: str) -> str:
    """Return the place of a line of a traceback in the script's own code: "train.py:31 in step"; else ""."""
    cell = CELL_FRAME.match(line)
    if cell is not None:
        return at(f"cell {cell['cell']}", cell["line"]) + (f" in {cell['function']}" if cell["function"] else "")
    found = FRAME.search(line)
    if found is None or LIBRARY.search(found["file"]):
        return ""
    function = "" if found["function"] == "<module>" else f" in {found['function']}"
    return at(found["file"].rpartition("/")[2], found["line"]) + function


def in_words(place: str) -> str:
    """Return a place of the script, "train.py:31 in step", as words: "line 31 of train.py, in step"."""
    where, _, function = place.partition(" in ")
    file, _, line = where.rpartition(", line " if ", line " in where else ":")
    return f"line {line} of {file}" + (f", in {function}" if function else "")


def shell_words(words: Iterable[str]) -> str:
    """Return a command as a shell reads it, in one line of visible characters: $'...' if a word has others."""
    import shlex

    def escaped(character: str) -> str:
        code = ord(character)
        if character.isprintable():
            return ESCAPES.get(character, character)
        if code in BYTES:
            return f"\\x{code - 0xDC00:02x}"
        short = f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the planes after the first
        return ESCAPES.get(character) or (f"\\x{code:02x}" if character.isascii() else short)

    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{''.join(map(escaped, word))}'" for word in words)


def counted(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun: 1 stall, 2 stalls.  `many`: a plural that is not formed by an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {many or f'{noun}s'}"


def times(number: int) -> str:
    """Return how often something happened: once, twice, 3 times."""
    return {1: "once", 2: "twice"}.get(number) or f"{number} times"


def per_second(rate: float) -> str:
    """Return a pace: 1 batch a second, 42.1 batches a second."""
    shown = f"{rate:.3g}"
    return f"{shown} {'batch' if shown == '1' else 'batches'} a second"


def count(number: int, one: str, many: str) -> str:
    """Return a number of things, in groups of three digits."""
    return f"{number:,} {one if number == 1 else many}".replace(",", "\u202f")


def incidents(stalls: int | None, crashes: int | None) -> str:
    """Return how many stalls and crashes there were, without those that there were none of; None: not known."""
    counts = ((stalls, "stall", "stalls"), (crashes, "crash", "crashes"))
    return ", ".join(count(number, one, many) for number, one, many in counts if number)


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit, in the size that reads best."""
    steps = STEPS.get(unit, ((1.0, ""),))
    size, name = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{value / size:.3g} {name}".rstrip()


def sparkline(values: Sequence[float | None], columns: int, *, from_zero: bool) -> str:
    """Return the newest values as blocks, one a column; a blank where nothing is known.

    `from_zero`: the lowest block is zero, else the lowest of the values.  Values that do not differ are a low line.
    """
    shown = [value if value is not None and abs(value) < float("inf") else None for value in values[-columns:]]
    known = [value for value in shown if value is not None]
    if not known:
        return ""
    low = 0.0 if from_zero else min(known)
    span = max(known) - low
    if span <= 0:
        return "".join(" " if value is None else BLOCKS[0] for value in shown)
    steps = len(BLOCKS) - 1
    # Limited before it is rounded: the quotient of values that differ by 300 powers of ten is infinite.
    shares = [None if value is None else min(1.0, max(0.0, (value - low) / span)) for value in shown]
    return "".join(" " if share is None else BLOCKS[round(share * steps)] for share in shares)


def wrapped(text: str, width: int | None, indent: str = "  ") -> str:
    """Return a line broken between words for `width` columns, `indent` before the rest; as it is for None.

    A word that is longer than a line, such as a path, stays whole: it can be copied then.
    """
    if width is None or len(text) <= width:
        return text
    import textwrap

    lead = text[: len(text) - len(text.lstrip())]
    lines = textwrap.wrap(
        text, max(width, 20), subsequent_indent=lead + indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def cut(text: str, most: int) -> str:
    """Return `text`, or its first `most` - 1 characters and an ellipsis if it has more than `most`."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
