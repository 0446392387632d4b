"""What a line of the training's output means: the table of log signatures, and how to ask it.

Pure; knows one line (and the one before).  Must not read any output itself.
"""

from __future__ import annotations

from typing import NamedTuple

from stallguard.core.diagnosis.signature import Signature
from stallguard.core.diagnosis.signatures_frameworks import TABLE

# Families without a problem: for the journal only.
QUIET = frozenset({"BENIGN", "PHASE", "PHASE_TRACE", "PHASE_GRACE", "PHASE_END", "INFO_MEM", "AFTERMATH"})
# Families that say why a Metal command buffer failed; they stand inside a block that GPU_FAULT_HEADER opens.
REASONS = frozenset({"GPU_FAULT", "GPU_FAULT_STICKY", "GPU_OOM", "GPU_WATCHDOG"})
TRACEBACK = "python_traceback"  # id and family of Python's traceback, which no single line shows
SCRIPT_ERROR = "SCRIPT_ERROR"

BY_ID = {signature.id: signature for signature in TABLE}


class Sight(NamedTuple):
    """A signature found in a line, and its first and last column."""

    signature: Signature
    begin: int
    end: int


def sights(line: str, before: str = "") -> list[Sight]:
    """Return all signatures that `line` shows, the most significant first.  `before`: the line before it."""
    found = []
    for signature in TABLE:
        if any(key in line for key in signature.keys):
            text = line if signature.span == 1 else f"{before}\n{line}"
            match = signature.pattern.search(text)
            if match:
                lead = len(text) - len(line)
                found.append(Sight(signature, max(0, match.start() - lead), match.end() - lead))
    return found


def matches(line: str, before: str = "") -> list[Signature]:
    """Return the signatures alone."""
    return [sight.signature for sight in sights(line, before)]


def reason(line: str) -> Signature | None:
    """Return why a Metal command buffer failed, if `line` says so."""
    return next((signature for signature in matches(line) if signature.family in REASONS), None)


def keys() -> tuple[str, ...]:
    """Return the texts of which every line that means something contains one."""
    return tuple(sorted({key for signature in TABLE for key in signature.keys}))
