"""A finding, and the words for its severity.

ok: looked at, and well.  note: worth knowing.  warn: may cost time or results.  fail: would spoil a night.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from stallguard.doctor.facts import Facts

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"
SEVERITIES = (OK, NOTE, WARN, FAIL)


class Finding(msgspec.Struct, frozen=True):
    """What was found, and what to do about it.  `name`: the check, in the table's words."""

    name: str
    severity: str
    what: str
    cure: str = ""


class Said(msgspec.Struct, frozen=True):
    """A finding before the table has put the check's name to it."""

    severity: str
    what: str
    cure: str = ""


Check = Callable[[Facts], Iterator[Said]]


def ok(what: str) -> Said:
    """Say that something is well."""
    return Said(OK, what)


def note(what: str, cure: str = "") -> Said:
    """Say something worth knowing."""
    return Said(NOTE, what, cure)


def warn(what: str, cure: str) -> Said:
    """Say that something may cost time or results."""
    return Said(WARN, what, cure)


def fail(what: str, cure: str) -> Said:
    """Say that something would spoil a night."""
    return Said(FAIL, what, cure)


def worst(findings: list[Finding]) -> str:
    """Return the gravest severity."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=OK)
