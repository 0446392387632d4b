"""Whether an attempt is watched from outside only, and why.  Pure.

A probe waits in each Python process until a training library is imported, or the script calls stallguard; before that
it sends nothing.  So silence alone shows neither that no library was loaded nor that there is a probe.
"""

from __future__ import annotations

from typing import NamedTuple

# Seconds.  An import of TensorFlow from a slow disk begins within seconds; its probe reports as it begins.
AFTER = 60.0
NO_LIBRARY = "watched from outside only: no training library was loaded"
NO_PROBE = "watched from outside only: no report from a probe"
LOADED = "a training library was loaded, or the script called stallguard: no longer watched from outside only"


class ProbeReports(NamedTuple):
    """What is known of the probes of an attempt."""

    ever: bool  # one sent a record: its process imported a library, or called stallguard
    waiting: bool  # one waits for a training library, in a process that lives
    loading: bool  # a process imported one, and sends nothing before it trains: a worker of a pool


def watched(reports: ProbeReports, seconds: float, barred: str = "") -> str:
    """Return how an attempt of this age is watched from outside only, "" if it is not, or if that is not known yet.

    `barred`: why the command cannot get a probe, if that is known.
    """
    if reports.ever or reports.loading or seconds < AFTER:
        return ""
    if reports.waiting:
        return NO_LIBRARY
    return f"{NO_PROBE}: {barred}" if barred else NO_PROBE
