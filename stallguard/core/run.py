"""The state of a run, as one value, and the small questions that are asked of it.

This module may not change a run; core.fold does.
"""

from __future__ import annotations

import math

import msgspec

from stallguard.core import lifecycle
from stallguard.core.detector import Judge
from stallguard.core.history import History
from stallguard.core.past import Past
from stallguard.core.reviewed import Review
from stallguard.core.sizes import Sizes
from stallguard.core.verdicts import Decision, Finding


class Totals(msgspec.Struct, frozen=True):
    """What the end of the story adds up; seconds and counts over all attempts."""

    beats: int = 0  # batches trained in attempts before this one
    incidents: int = 0
    lost: float = 0.0  # silence before a stall was ended, and pauses between attempts


class Run(msgspec.Struct, frozen=True):
    """A run at one instant.  `deadline`: when the present state's patience ends (monotonic seconds)."""

    judge: Judge
    history: History
    past: Past
    state: str = lifecycle.NEW
    now: float = 0.0
    began: float = 0.0
    attempt: int = 0
    pid: int = 0
    launched: float = 0.0
    ended: float = 0.0  # when the attempt before this one ended
    factor: int = 1
    device: str = "default"
    sizes: Sizes = Sizes()  # which batches this script survives here
    changes: tuple[tuple[int, str], ...] = ()  # for the mathematics of the training: attempt, sentence
    sized: float = 0.0  # since when it trains at this factor
    regrowing: bool = False  # a larger batch is to come at the end of an epoch
    deadline: float = math.inf
    urgent: bool = False  # what the output reported only gets worse: act although batches seem to end
    step: str = "off"  # the judgement's step after the event before this one
    beyond: tuple[str, ...] = ()  # what a remedy cannot reach in this script, told already
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None  # what follows the end of this attempt
    spared: float = 0.0  # since when a checkpoint that is being written holds SIGKILL back
    arranged: bool = False  # the decision is an end at a set time, which the training may forestall
    obeyed: bool = False  # the probe has asked the framework to end after the batch
    review: Review = Review()
    interrupts: int = 0
    quiet_until: float = 0.0  # muted by the user: judged, never acted upon
    totals: Totals = Totals()
    code: int = 0


def beats(run: Run) -> int:
    """Return the batches trained so far, all attempts together."""
    heard = run.history.heard
    return run.totals.beats + (heard.beats if heard else 0)


def is_muted(run: Run) -> bool:
    """Tell whether the user asked to be left alone for now."""
    return run.now < run.quiet_until
