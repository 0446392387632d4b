"""The detector's state, and the table of what a user sees.

This module must not judge: core.detection.detector feeds the state, core.detection.verdict reads it.
"""

from __future__ import annotations

import msgspec

from stallguard.core.detection.activity import Activity
from stallguard.core.detection.baseline import Baseline
from stallguard.core.detection.slowdown import Slowdown
from stallguard.core.detection.watched_clock import WatchedClock
from stallguard.core.events import Heartbeat
from stallguard.core.verdicts import Judgement

# What a user sees: state -> {signal: state}.  A signal that a state does not list changes nothing.
STEPS: dict[str, dict[str, str]] = {
    "off": {"armed": "healthy", "stalled": "stalled", "stopped": "stopped", "suspect": "suspect"},
    "healthy": {"suspect": "suspect", "stalled": "stalled", "stopped": "stopped"},
    "suspect": {"stalled": "stalled", "stopped": "stopped", "progress": "recovering", "busy": "healthy"},
    "stalled": {"stopped": "stopped", "progress": "recovering", "busy": "healthy"},
    "stopped": {"progress": "recovering", "continued": "healthy"},
    "recovering": {"stalled": "stalled", "stopped": "stopped", "settled": "healthy"},
    "exited": {},
}


class DetectorState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The detector's whole state, constant in size.  `began`: watched seconds of the last progress."""

    clock: WatchedClock = WatchedClock()
    evidence: Activity = Activity()
    rows: dict[str, Baseline] = {}
    slowdown: Slowdown = Slowdown()
    judgement: Judgement = Judgement()
    heartbeat: Heartbeat | None = None
    greeted: bool = False
    began: float = 0.0
    began_at: float = 0.0  # the same on the supervisor's clock
    last_record: float = 0.0  # watched seconds of the last record
    checks_before: int = 0  # validation batches when this validation began
    strikes: float = 1.0
    settling: int = 0  # events since the recovery began
    polled: float = 0.0  # watched seconds when the device last answered the poll thread
    polled_beats: int = 0  # beats at that time
    about: dict[str, str] = {}  # what the rows were learned on: device, micro-batches, versions
    stepping: bool = False  # the last record showed steady steps, so readings now are normal ones
    still: bool = False  # the evidence of the verdict holds at this moment
    check_at: float | None = None
    census_at: float = -1e9  # watched seconds of the last census while healthy


def move(step: str, signal: str) -> str:
    """Return the state after a signal; the same state if the table lists none."""
    return STEPS[step].get(signal, step)
