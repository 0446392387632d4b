"""The decoders of what comes from outside, each with valid samples, the errors that it documents, and what must hold.

A decoder that reads a file gets one in memory if the system has such a place.  A check raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

ROOT = Path(__file__).resolve().parents[3]
RECORDINGS = ROOT / "tests" / "recordings"
Check = Callable[[bytes, Any], None]


class Target(NamedTuple):
    """A decoder.  `errors`: those that it documents; `check`: what must hold of an input and its result."""

    name: str
    samples: Sequence[bytes]
    call: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...] = ()
    check: Check | None = None
    words: Sequence[bytes] = ()


def catalog(place: Path) -> Iterator[Target]:
    """Yield all decoders; `place`: an empty directory for the files that some read."""
    from fuzzing import from_files, from_sockets, from_tools

    yield from from_sockets.targets(place)
    yield from from_files.targets(place)
    yield from from_tools.targets()


def recorded(*names: str, most: int = 1200) -> list[bytes]:
    """Return the beginnings of recordings, in whole lines."""
    found = []
    for name in names:
        for path in sorted((RECORDINGS / "macos").glob(name)):
            data = path.read_bytes()
            found.append(data if len(data) <= most else data[: data.rfind(b"\n", 0, most) + 1] or data[:most])
    assert found, names
    return found


def text(call: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """Return `call` for bytes, decoded as the output of a tool is."""
    return lambda data: call(data.decode(errors="replace"))


def filed(path: Path, call: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """Return `call` for bytes, which are written to `path` first."""

    def read(data: bytes) -> Any:
        path.write_bytes(data)
        return call(path)

    return read


def encoded(*values: Any) -> list[bytes]:
    return [msgspec.json.encode(value) for value in values]
