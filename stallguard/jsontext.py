"""JSON of text that is not always UTF-8: arguments, paths and variables are bytes, in Python strings with surrogates.

`exact` keeps them, as the escapes of single surrogates that Python's json writes and reads; msgspec refuses both.
`readable` replaces them: for what is shown and never handed to a process.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stallguard.errors import UNREADABLE

T = TypeVar("T")


def exact(value: Any, indent: int = 0) -> bytes:
    """Return `value` as JSON from which `decode` makes the same value.  `indent`: spaces a level; 0 for one line."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json  # 2 ms that must not stand before the start of a training, which hardly ever needs it

        return json.dumps(msgspec.to_builtins(value), indent=indent or None).encode()
    return msgspec.json.format(text, indent=indent) if indent else text


def readable(value: Any) -> bytes:
    """Return `value` as JSON, with "?" for what is not UTF-8."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        import json

        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace")


def decode(data: bytes, kind: type[T]) -> T:
    """Return the value in `data`.  Raises errors.UNREADABLE."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError:
        if rb"\ud" not in data:
            raise
        import json

        return msgspec.convert(json.loads(data), kind)


def read(path: Path, kind: type[T]) -> T | None:
    """Return the value in a file; None if there is no file, or it is damaged."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return decode(path.read_bytes(), kind)
    return None
