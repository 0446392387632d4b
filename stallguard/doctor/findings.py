"""A finding and its severity.

ok: no problem.  note: information.  warn: can cost time or results.  fail: the training would fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from stallguard.doctor.facts import MachineFacts

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"
SEVERITIES = (OK, NOTE, WARN, FAIL)


class CheckResult(msgspec.Struct, frozen=True):
    """What was found, and what to do about it.  `name`: the check, as in the table."""

    name: str
    severity: str
    what: str
    cure: str = ""


class CheckText(msgspec.Struct, frozen=True):
    """A finding without the name of its check, which the table adds."""

    severity: str
    what: str
    cure: str = ""


Check = Callable[[MachineFacts], Iterator[CheckText]]


def ok(what: str) -> CheckText:
    """Return a finding without a problem."""
    return CheckText(OK, what)


def note(what: str, cure: str = "") -> CheckText:
    """Return information."""
    return CheckText(NOTE, what, cure)


def warn(what: str, cure: str) -> CheckText:
    """Return a problem that can cost time or results."""
    return CheckText(WARN, what, cure)


def fail(what: str, cure: str) -> CheckText:
    """Return a problem that would make the training fail."""
    return CheckText(FAIL, what, cure)


def worst(findings: list[CheckResult]) -> str:
    """Return the worst severity."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=OK)
