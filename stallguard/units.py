"""Durations, sizes, shares and times of day as users write them.

Pure: text in, numbers out, and back.  Any other text raises ValueError; the caller writes the message.
"""

from __future__ import annotations

import math
import re

from stallguard.core.limits import NEVER

SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_TIME_NAMES = {
    "ms": "ms", "millisecond": "ms", "milliseconds": "ms",
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "h": "h", "hr": "h", "hour": "h", "hours": "h",
    "d": "d", "day": "d", "days": "d",
}  # fmt: skip
# Decimal units (SI), binary ones with an i (IEC 80000-13).
BYTES = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3}
_SIZE_NAMES = {"": 1, "b": 1} | {
    f"{letter}{tail}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for tail, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
}
# `re` compiles them when they are used first: the start of most trainings need not wait for that.
_PIECE = r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*"
_CLOCK = r"([01]?\d|2[0-3]):([0-5]\d)"


def duration(text: str) -> float:
    """Return the seconds of `90s`, `5m`, `1h30m`, `2 days`, `never`, or of a bare number.

    Raises ValueError for anything else, negative and infinite durations included.
    """
    plain = text.strip().lower()
    if plain == "never":
        return NEVER
    pieces = re.findall(_PIECE, plain)
    is_bare = len(pieces) == 1 and not pieces[0][1]
    is_known = is_bare or all(unit in _TIME_NAMES for _, unit in pieces)
    if not pieces or re.sub(_PIECE, "", plain) or not is_known:
        raise ValueError(plain)
    if is_bare:
        return _finite(float(pieces[0][0]))
    return _finite(math.fsum(float(number) * SECONDS[_TIME_NAMES[unit]] for number, unit in pieces))


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise ValueError(str(number))
    return number


def show_duration(seconds: float) -> str:
    """Return seconds as a short text that `duration` reads back, to the microsecond."""
    if seconds >= NEVER:
        return "never"
    if seconds != int(seconds) or seconds < 1:
        return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"
    rest, words = int(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        words += f"{count}{unit}" if count else ""
    return words


def size(text: str) -> int:
    """Return the bytes of `20MB`, `1.5 GiB`, `512k`, or of a bare number.  Raises ValueError for anything else."""
    match = re.fullmatch(_PIECE, text.strip().lower())
    if match is None or match[2] not in _SIZE_NAMES:
        raise ValueError(text)
    return round(_finite(float(match[1]) * _SIZE_NAMES[match[2]]))


def show_size(count: int) -> str:
    """Return bytes as the shortest text that `size` reads back as the same number."""
    for unit, worth in BYTES.items():
        if count and count % (worth // 10) == 0 and count >= worth:
            whole, tenth = divmod(count // (worth // 10), 10)
            return f"{whole}.{tenth}{unit}" if tenth else f"{whole}{unit}"
    return f"{count}B" if count else "0"


def share(text: str) -> float:
    """Return 0..1 for `5%` or `0.05`.  Raises ValueError for anything else or anything outside."""
    plain = text.strip()
    number = float(plain[:-1]) / 100 if plain.endswith("%") else float(plain)
    if not 0 <= number <= 1:
        raise ValueError(text)
    return number


def clock(text: str) -> tuple[int, int]:
    """Return hour and minute of `7:30` or `23:00`.  Raises ValueError for anything else."""
    match = re.fullmatch(_CLOCK, text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]), int(match[2])
