"""Advice as the journal has it, as a sentence and the line of code that belongs to it.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from stallguard.core.diagnosis.causes import CAUSES
from stallguard.report.narrative import prose

# The longest first: a line can end like another one.
CODES = sorted(
    {piece.code for cause in CAUSES.values() for piece in cause.advice if piece.code}, key=len, reverse=True
)
_CODE = re.compile(
    ": (?P<code>" + "|".join(re.escape(code).replace(r"\{pid\}", r"(?:\d+|PID)") for code in CODES) + ")$"
)


def advice(text: str) -> tuple[str, str]:
    """Return a piece of advice as its sentence and, if it has one, the line to use."""
    found = _CODE.search(text)
    return (prose(text[: found.start()]), found["code"]) if found else (prose(text), "")


def first_advice(texts: Sequence[str]) -> tuple[str, str]:
    """Return the first piece of advice that has a line to use, otherwise the first one; ("", "") if there is none."""
    pieces = [advice(text) for text in texts]
    return next((piece for piece in pieces if piece[1]), pieces[0] if pieces else ("", ""))
