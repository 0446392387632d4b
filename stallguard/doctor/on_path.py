"""Whether a program `stallguard` on PATH is this one: the name on the package index belongs to another program.

Reads files only; it never starts a program that is possibly not stallguard.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DISTRIBUTION = "stallguard_train"  # as directories of installed metadata spell it
HEAD_MAX = 1024  # bytes; an interpreter's path of more is refused by every kernel
# A script names its interpreter in its first line, or, if that path is long or has blanks, behind a shell's exec.
_INTERPRETER = re.compile(
    r"\A#!\s*(?:/bin/sh\s+'''exec' \"?)?([^\n\"]+?)(?:\"? \"\$0\"[^\n]*)?\s*$", re.MULTILINE
)


def foreign(program: str | None) -> str:
    """Return `program` if it is not installed by this distribution; "" if it is, or if there is none."""
    if program is None:
        return ""
    try:
        with Path(program).open("rb") as file:
            head = file.read(HEAD_MAX).decode(errors="replace")
    except OSError:
        return program
    match = _INTERPRETER.match(head)
    if match is None:  # no script
        return program
    interpreter = Path(match[1])
    if interpreter == Path(sys.executable):
        return ""
    metadata = f"lib/python3*/site-packages/{DISTRIBUTION}-*.dist-info"
    return "" if any(interpreter.parent.parent.glob(metadata)) else program
