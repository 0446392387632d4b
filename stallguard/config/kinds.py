"""The kinds of values that a setting can have: how each is read, shown, and described to people and machines.

A table of functions; must not depend on any setting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from stallguard import units
from stallguard.errors import nearest


class Kind(NamedTuple):
    """One kind of value.  `read` raises ValueError for what is not of the kind."""

    metavar: str
    expected: str
    read: Callable[[Any], Any]
    show: Callable[[Any], str]
    schema: dict[str, Any]


MOST = 10**15  # a petabyte; a larger number is a slip, and one of more than 64 bits is no JSON for us


class Explained(ValueError):
    """A value of the right form with an unknown name; the text says which, for the user."""


def _number(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ValueError(raw)  # noqa: TRY004 - one error type for all that does not fit
    number = float(raw)
    if not math.isfinite(number) or number < 0:
        raise ValueError(raw)
    return number


def _count(raw: Any) -> int:
    number = _number(raw)
    if number != int(number) or number > MOST:
        raise ValueError(raw)
    return int(number)


def _positive(raw: Any) -> int:
    number = _count(raw)
    if number < 1:
        raise ValueError(raw)
    return number


def _written(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Read text by `read`; a number as it is."""
    return lambda raw: read(raw) if isinstance(raw, str) else _number(raw)


def _size(raw: Any) -> int:
    number: int = round(_written(units.size)(raw))
    if number > MOST:
        raise ValueError(raw)
    return number


def _share(raw: Any) -> float:
    return units.share(raw if isinstance(raw, str) else str(_number(raw)))


YES, NO = ("1", "on", "true", "yes"), ("0", "off", "false", "no")


def _switch(raw: Any) -> bool:
    word = raw.lower() if isinstance(raw, str) else raw
    if isinstance(word, bool):
        return word
    if word in YES or word in NO:
        return word in YES
    raise ValueError(raw)


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or "\0" in raw:
        raise ValueError(raw)
    return raw


def _clock(raw: Any) -> str:
    text = _text(raw)
    if not text:
        return ""
    hour, minute = units.clock(text)
    return f"{hour:02}:{minute:02}"


def _texts(raw: Any) -> tuple[str, ...]:
    words = re.split(r"[,\s]+", raw.strip()) if isinstance(raw, str) else raw
    if not isinstance(words, list | tuple):
        raise ValueError(raw)  # noqa: TRY004 - as above
    return tuple(_text(word) for word in words if word)


def _show_number(number: float) -> str:
    return f"{number:g}"


_WRITTEN: dict[str, Any] = {"type": ["number", "string"]}

DURATION = Kind(
    "DURATION",
    "a duration: 90s, 5m, 8h, 1h30m, never, or seconds as a number",
    _written(units.duration),
    units.show_duration,
    _WRITTEN | {"examples": ["90s", "5m", "8h"]},
)


def _some_time(raw: Any) -> float:
    seconds = float(DURATION.read(raw))
    if seconds < 1:
        raise ValueError(raw)
    return seconds


TIME = Kind("DURATION", f"{DURATION.expected}; one second or more", _some_time, DURATION.show, DURATION.schema)
SIZE = Kind(
    "SIZE",
    "a size: 20MB, 1.5GB, 512KiB, or bytes as a number",
    _size,
    lambda count: units.show_size(round(count)),
    _WRITTEN | {"examples": ["20MB", "1.5GB"]},
)
SHARE = Kind("SHARE", "a share: 5% or 0.05", _share, _show_number, _WRITTEN | {"examples": ["5%", 0.05]})
NUMBER = Kind("NUMBER", "a number, not negative", _number, _show_number, {"type": "number", "minimum": 0})


def at_least(least: float) -> Kind:
    """Return the kind of a number that is `least` or more."""

    def read(raw: Any) -> float:
        number = _number(raw)
        if number < least:
            raise ValueError(raw)
        return number

    schema = {"type": "number", "minimum": least}
    return Kind("NUMBER", f"a number, {least:g} or more", read, _show_number, schema)


COUNT = Kind("COUNT", "a whole number, 0 or more", _count, str, {"type": "integer", "minimum": 0})
POSITIVE = Kind("COUNT", "a whole number, 1 or more", _positive, str, {"type": "integer", "minimum": 1})
SWITCH = Kind("", "on or off (true or false)", _switch, lambda on: "on" if on else "off", {"type": "boolean"})
TEXT = Kind("TEXT", "text in quotes", _text, lambda text: text or "-", {"type": "string"})
CLOCK = Kind(
    "HH:MM", "a time of day: 07:30", _clock, lambda text: text or "-", {"type": "string", "examples": ["07:30"]}
)
TEXTS = Kind(
    "LIST",
    'a list of texts: ["a", "b"]',
    _texts,
    lambda words: " ".join(words) or "-",
    {"type": "array", "items": {"type": "string"}},
)


def choice(*words: str) -> Kind:
    """Return the kind of a value that is one of `words`."""

    def read(raw: Any) -> str:
        if raw not in words:
            raise ValueError(raw)
        return str(raw)

    return Kind("|".join(words), f"one of {', '.join(words)}", read, str, {"enum": list(words)})


def some(*words: str) -> Kind:
    """Return the kind of a list whose members are among `words`."""

    def read(raw: Any) -> tuple[str, ...]:
        found = _texts(raw)
        if not set(found) <= set(words):
            raise ValueError(raw)
        return found

    schema = {"type": "array", "items": {"enum": list(words)}}
    return Kind("LIST", f"a list of some of {', '.join(words)}", read, TEXTS.show, schema)


def pairs(left: str, lefts: Iterable[str], right: str, rights: Iterable[str]) -> Kind:
    """Return the kind of a list of "one=other" with known names; `left`, `right`: what the names are."""

    def read(raw: Any) -> tuple[str, ...]:
        spaced = re.sub(r"\s*=\s*", "=", raw) if isinstance(raw, str) else raw
        found = []
        for text in _texts(spaced):
            one, equals, other = (part.strip() for part in text.partition("="))
            if not equals:
                raise Explained(f"{text!r} is not of the form {left}={right}")
            found.append(f"{_known(left, one, lefts)}={_known(right, other, rights)}")
        return tuple(found)

    schema = {"type": "array", "items": {"type": "string", "pattern": f"^({'|'.join(lefts)})=({'|'.join(rights)})$"}}
    return Kind("LIST", f"a list of {left}={right}", read, TEXTS.show, schema)


def _known(what: str, name: str, names: Iterable[str]) -> str:
    if name in names:
        return name
    near = nearest(name, names, cutoff=0.5)
    hint = f"did you mean {near}?" if near else f"the {what}s are {', '.join(names)}"
    raise Explained(f"there is no {what} {name!r}; {hint}")
