"""The file of sampled stacks that the probe keeps of each training, in the run's directory.

It is there while the training runs and after any end of it; it lacks at most the last seconds before a kill.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from stallguard import jsontext
from stallguard.core.text import whole_number
from stallguard.errors import UNREADABLE
from stallguard.probe import wire
from stallguard.storage import cells

TRIES = 3  # reads of a file that is being written; a write takes a millisecond


class CodeLine(msgspec.Struct, frozen=True, array_like=True):
    """A line of code in a stack."""

    file: str
    line: int
    function: str


class StackTime(msgspec.Struct, frozen=True, array_like=True):
    """A stack, and the time in it.

    `stack`: indices of lines, the outermost first; empty for the sum of the stacks that are left out.
    """

    role: str
    phase: str
    stack: tuple[int, ...]
    milliseconds: int


class FunctionTime(msgspec.Struct, frozen=True, array_like=True):
    """A function of the script that runs inside TensorFlow's graphs, each call of it measured.

    `purpose`: input or step; `line`: of its definition; `milliseconds`: of all its calls, in all threads.
    """

    purpose: str
    file: str
    line: int
    function: str
    calls: int
    milliseconds: int


class StackSamples(msgspec.Struct, frozen=True):
    """What the probe sampled of one training since it began."""

    began: int  # when the program began, ns (wire.py): a pid can come again
    samples: int
    milliseconds: int  # that the samples cover
    lines: list[CodeLine]
    stacks: list[StackTime]
    functions: list[FunctionTime] = []
    beats: int = 0  # batches trained when it was written
    saves: int | None = None  # checkpoints that the script has written by then


def path(probe: Path, pid: int) -> Path:
    """Return the file of process `pid`; `probe`: the run's directory of the probe's files."""
    return probe / (wire.PROFILE % pid)


def read(file: Path) -> StackSamples | None:
    """Return what a file holds, None if there is nothing yet or it is damaged.  Raises OSError."""
    for _ in range(TRIES):
        text = wire.profile_text(file.read_bytes())
        if text is None:
            continue
        try:
            found = jsontext.decode(text, StackSamples)
        except UNREADABLE:  # written anew meanwhile
            continue
        if all(0 <= number < len(found.lines) for one in found.stacks for number in one.stack):
            return _with_cells(found, file)
    return None


def _with_cells(found: StackSamples, file: Path) -> StackSamples:
    """Return the samples with the numbers of a notebook's cells in place of their files."""
    number = whole_number(file.stem)
    known = cells.of(file.parent, number) if number else {}
    if not known:
        return found
    lines = [msgspec.structs.replace(line, file=known.get(line.file, line.file)) for line in found.lines]
    functions = [msgspec.structs.replace(one, file=known.get(one.file, one.file)) for one in found.functions]
    return msgspec.structs.replace(found, lines=lines, functions=functions)


def is_begun(file: Path) -> bool:
    """Return whether anything was written into a file, readable or not.  Raises OSError."""
    return any(file.read_bytes()[: wire.PROFILE_HEAD])
