"""Native stacks: `sample` of macOS and `thread apply all bt` of gdb, as threads with their heaviest path.

Pure: text in, values out.  frames.py classifies the symbols.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from stallguard.collectors import frames

STUCK = 0.95  # of a thread's samples in its innermost frame: it waits there, or spins

_SAMPLED = re.compile(r"(?P<lead>[ +!:|]*)(?P<count>\d{1,9}) (?P<what>\S.*)")
_TAIL = re.compile(r"(\s+\+ [\d,. ]+)?(\s+\[0x[0-9a-f,x.]+\])?\s*$")
_GDB_THREAD = re.compile(r"Thread (?P<number>\d{1,9}) \((?P<name>.*)\)")
_GDB_FRAME = re.compile(r"#\d+\s+(?:0x[0-9a-f]+ in )?(?P<symbol>.+?) \(.*?(?: from (?P<image>\S+))?$")


class Path(msgspec.Struct, frozen=True):
    """A thread's heaviest path, outermost first.  `share` of the samples that were in its last frame."""

    thread: str
    symbols: tuple[str, ...] = ()
    share: float = 1.0


def parse_sample(text: str) -> list[Path]:
    """Return the threads of a `sample` report.  Children are indented below their caller, the heaviest first."""
    threads: list[list[_Sampled]] = [[]]
    for line in text.partition("\nTotal number in stack")[0].splitlines():
        match = _SAMPLED.fullmatch(line)
        if not match or match["what"].startswith("Thread_"):
            threads.append([])
        if match:
            threads[-1].append(_Sampled(len(match["lead"]), int(match["count"]), match["what"]))
    return [_heaviest(block) for block in threads if block]


class _Sampled(NamedTuple):
    depth: int
    hits: int
    what: str


def _heaviest(block: Sequence[_Sampled]) -> Path:
    """Return the path of the first rows, each of which is deeper than the one before: the heaviest child is first."""
    path = [block[0]]
    for row in block[1:]:
        if row.depth <= path[-1].depth:
            break
        path.append(row)
    thread = path[0].what if path[0].what.startswith("Thread_") else ""
    symbols = tuple(" ".join(_TAIL.sub("", row.what).split()) for row in path[bool(thread) :])
    return Path(thread, symbols, path[-1].hits / path[0].hits if path[0].hits else 1.0)


def parse_gdb(text: str) -> list[Path]:
    """Return the threads of gdb's `thread apply all bt`, whose frames are innermost first."""
    paths: list[Path] = []
    for line in text.splitlines():
        head, frame = _GDB_THREAD.match(line), _GDB_FRAME.match(line)
        if head:
            paths.append(Path(f"Thread {head['number']} ({head['name']})"))
        elif frame and paths:
            symbol = f"{frame['symbol']} (in {frame['image']})" if frame["image"] else frame["symbol"]
            paths[-1] = msgspec.structs.replace(paths[-1], symbols=(symbol, *paths[-1].symbols))
    return paths


def classes(paths: Iterable[Path], *, sampled: bool = True) -> tuple[str, ...]:
    """Return what the waiting threads do, each class once.

    Every wait ends in a lock, so a lock counts only if there is no other class.  `sampled`: over several seconds;
    a single dump (gdb) of a healthy program can show threads that wait for the interpreter's lock.
    """
    stuck = [path for path in paths if path.symbols and path.share >= STUCK]
    found = dict.fromkeys(kind for path in stuck if (kind := frames.classify_native(path.symbols)))
    if not sampled:
        found.pop(frames.GIL_NATIVE, None)
    specific = tuple(kind for kind in found if kind != frames.LOCK)
    return specific or tuple(found)
