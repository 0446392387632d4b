"""The Python stacks of a process that crashed: what probe/stack_dumps.py had written, read after its end.

A run is often several processes.  The stacks of the attempt's own process come first; else those of the process that
crashed first, because the others can end for it.  Those of a worker, a process forked by one with a probe, are
reported as a worker's: a program can go on without it.  Must not decide why an attempt ended.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stallguard.collectors import stacks
from stallguard.storage import cells, private

MOST = 1 << 20  # bytes that are read of a file, from its end: faulthandler writes at most 100 threads with 100 frames
NEAR = 600.0  # seconds before an attempt's end in which another process' crash can be its reason
ITSELF, WORKER = "", "worker"
_HEAD = re.compile(r"^Fatal Python error: ", re.MULTILINE)
_ELSEWHERE = re.compile(r"^the program has them written to (\d{1,18}) (.+)$", re.MULTILINE)


class Crash(msgspec.Struct, frozen=True):
    """`text`: as faulthandler wrote it; `at`: "train.py:31 in step", "" if no line of the script is known.

    `of`: ITSELF (the attempt's process, or the only program with a probe), WORKER, or "process 123".
    """

    text: str
    at: str
    of: str = ITSELF


class _Found(msgspec.Struct, frozen=True):
    text: str
    written: float  # seconds since the epoch
    pid: int
    is_worker: bool


def find(pages: Path, pid: int, ended: float, printed: str, cwd: str) -> Crash | None:
    """Return the crash that ended an attempt, or can have; None if no process wrote one.

    `pages`: where the probes' files are, without those of earlier attempts; `pid`: the attempt's process; `ended`: when
    it did, seconds since the epoch; `printed`: what it printed, "" if it did not end by a signal; `cwd`: for short
    names.
    """
    found = list(_written(pages))
    own = [one for one in found if one.pid == pid and not one.is_worker]
    near = [one for one in found if one.written >= ended - NEAR]
    first = min(own or near, key=lambda one: (one.is_worker, one.written), default=None)
    if first is not None and (own or not last(printed)):
        is_training = not first.is_worker and (pages / f"{first.pid}.page").exists()
        of = WORKER if first.is_worker else ITSELF if own or is_training else f"process {first.pid}"
        return Crash(first.text, line(first.text, cwd), of)
    text = last(printed)
    return Crash(text, line(text, cwd)) if text else None


def _written(pages: Path) -> Iterator[_Found]:
    with contextlib.suppress(OSError):
        for path in pages.glob("*.crash"):
            number, _, rest = path.name.partition(".")
            if not number.isdecimal():
                continue
            with contextlib.suppress(OSError):
                text, written = tail(path), path.stat().st_mtime
                for other in _ELSEWHERE.finditer(text):
                    with contextlib.suppress(OSError):  # another process' file, or gone
                        more = Path(other[2])
                        if more.is_file() and last(tail(more, int(other[1]))):
                            text, written = tail(more, int(other[1])), more.stat().st_mtime
                if last(text):
                    yield _Found(
                        cells.named(last(text), pages, int(number)), written, int(number), rest.startswith("workers.")
                    )


def tail(path: Path, begin: int = 0) -> str:
    """Return the end of a file from byte `begin` on, MOST bytes at most.  Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(begin if begin <= size else 0, size - MOST))
        return file.read(MOST).decode(errors="replace")


def last(text: str) -> str:
    """Return the last crash in a text, "" if there is none."""
    heads = list(_HEAD.finditer(text))
    return text[heads[-1].start() :] if heads else ""


def line(text: str, cwd: str) -> str:
    """Return the script's line at which a process crashed, as "train.py:31 in step"; "" if it has none.

    The thread that crashed has it; of a native thread, which has no Python frames, none is known.
    """
    threads = stacks.parse(text)
    crashed = next((one for one in threads if one.current), None)
    if crashed is None or not crashed.frames:
        return ""
    own = next((frame for frame in crashed.frames if stacks.is_own(frame)), crashed.frames[0])
    return stacks.place(own, cwd)


def keep(crash: Crash, directory: Path, redact: Callable[[str], str]) -> None:
    """Write the stacks into `directory`, as evidence.  Raises OSError."""
    private.ensure(directory)
    private.write(directory / "stacks.txt", redact(crash.text).encode())


def clear(pages: Path) -> None:
    """Remove the files of an attempt that has ended: the next process of the same number begins a new one."""
    with contextlib.suppress(OSError):
        for path in pages.iterdir():
            if path.suffix in (".crash", ".waiting", ".loading"):
                with contextlib.suppress(OSError):
                    path.unlink()
