"""A finding and its severity.

ok: no problem.  note: information.  warn: can cost time or results.  fail: the training would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from stallguard.doctor.facts import Facts

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"
SEVERITIES = (OK, NOTE, WARN, FAIL)


class Finding(msgspec.Struct, frozen=True):
    """What was found, and what to do about it.  `name`: the check, as in the table."""

    name: str
    severity: str
    what: str
    cure: str = ""


class Said(msgspec.Struct, frozen=True):
    """A finding without the name of its check, which the table adds."""

    severity: str
    what: str
    cure: str = ""


Check = Callable[[Facts], Iterator[Said]]


def ok(what: str) -> Said:
    """Return a finding without a problem."""
    return Said(OK, what)


def note(what: str, cure: str = "") -> Said:
    """Return information."""
    return Said(NOTE, what, cure)


def warn(what: str, cure: str) -> Said:
    """Return a problem that can cost time or results."""
    return Said(WARN, what, cure)


def fail(what: str, cure: str) -> Said:
    """Return a problem that would make the training fail."""
    return Said(FAIL, what, cure)


def worst(findings: list[Finding]) -> str:
    """Return the worst severity."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=OK)
