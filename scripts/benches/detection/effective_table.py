"""The table and the goals of the effective training time of nights with four stalls."""

from __future__ import annotations

import math

from detection import effective
from detection.simulation import OURS, OURS_BLIND, Scores
from harness.results import Goal, number, table
from stallguard.core.limits import DetectorLimits

# Of nights with four stalls, with checkpoints as often as effective.OFTEN.  On a Mac an idle wait that no frame shows
# to be a lock is left two minutes, because waits for its GPU of 48 to 75 s have ended by themselves.
INEFFECTIVE = 0.03
FEW_STALLS = 500  # below which chance moves that share
ACT_AFTER = DetectorLimits().act_after
ASSUMED_COSTS = f"""
Assumptions: four stalls in eight hours in which the machine is awake, its sleep left out; a start takes
{effective.IMPORT:g} s and the night's own first batch; checkpoints come after each epoch too, and each rule resumes
from them; a Mac's training uses its GPU, so only what a frame shows to be a lock is acted upon before
{ACT_AFTER:g} s, on Linux each deadlock unless the GPU cannot be read; ours pays {effective.EVIDENCE:g} s for
evidence and {effective.INERT:g} or {effective.BUSY:g} s for the end of the process, the others nothing; seconds are
means of all restarts.
"""


def text(scores: Scores) -> str:
    """Return the effective training time of the rules that are shown, and what is assumed."""
    rows = []
    for every in (effective.OFTEN, effective.DEFAULT):
        for rule in (OURS, OURS_BLIND, *effective.SHOWN):
            whole = _account(scores, rule, every)
            restarts = whole.stalls + whole.needless
            worst = min(kind[rule].accounts[every].share for kind in scores.values())
            means = [getattr(whole.spent, name) / restarts for name in ("stalled", "restart", "redone_batches")]
            shares = (f"{share:.1%}".replace("%", " %") for share in (whole.share, worst))
            cells = (f"{every:.0f} s", *shares, *map(number, means), f"{whole.needless:,}")
            rows.append((rule, *cells))
    head = (
        "four stalls a night", "checkpoint every", "effective training time", "worst kind of night", "stalled, s",
        "start, s", "redone, s", "needless restarts",
    )  # fmt: skip
    return f"{table(head, rows)}\n{ASSUMED_COSTS}"


def _account(scores: Scores, rule: str, every: float) -> effective.Account:
    whole = effective.Account()
    for kind in scores.values():
        whole = whole.plus(kind[rule].accounts[every])
    return whole


def goal(scores: Scores, rule: str) -> Goal:
    """Return how little of the time is to be ineffective with one of our rules."""
    whole = _account(scores, rule, effective.OFTEN)
    # Two standard errors of the mean: a stall costs 200 s more or less, of two hours.
    error = 0.055 / math.sqrt(max(1, whole.stalls)) if whole.stalls < FEW_STALLS else 0.0
    name = f"ineffective share, four stalls a night, {rule}"
    return Goal(name, 1.0 - whole.share, INEFFECTIVE + error)
