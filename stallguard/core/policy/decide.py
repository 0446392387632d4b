"""The policy: from the causes and the attempts so far to what happens now.

`decide(findings, past, limits) -> Decision`: wait, notify, restart (how, and after what pause), give up, or finish.
What helps against what is the table core.policy.remedies; here are only the bounds that no remedy may cross: the budget
of restarts, the end of progress, the smallest batch.  This module may not look at a history or a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallguard.core.diagnosis import causes
from stallguard.core.limits import DEFAULTS, PolicyLimits
from stallguard.core.policy import remedies
from stallguard.core.policy.attempts import KEPT, Attempt, Past, spent, streak, strikes
from stallguard.core.policy.remedies import CPU, FINISH, HALF, NOTIFY, SAME, WAIT, Remedy
from stallguard.core.verdicts import Decision, Finding
from stallguard.errors import GAVE_UP, SIGNALLED

TRUSTED = 0.35  # confidence below which the remedy of the unknown is used
AT_ONCE = frozenset((causes.GPU_ERROR_STICKY,))  # never wait for the heartbeat: the process computes nonsense


def decide(findings: Sequence[Finding], past: Past, limits: PolicyLimits) -> Decision:
    """Return what to do about the attempt that stands last in `past`, given why it ended or stalls."""
    last = past.attempts[-1] if past.attempts else None
    if last is not None and last.code == 0:
        return Decision(action="finish", why="the training is finished", code=0)
    remedy, ordered = _remedy(findings, last, limits)
    if remedy.instead:
        return _at_once(remedy, last)
    if last is None:
        return Decision(action="restart", why=remedy.why)
    why_not = _spent_out(past, limits)
    if why_not:
        return _give_up(why_not, last)
    rung = _rung(remedy, past, last, limits, ordered=ordered)
    if rung is None:
        return _give_up(_exhausted(past, limits), last)
    return _restart(rung, remedy.why, past, last, limits)


def is_urgent(findings: Sequence[Finding]) -> bool:
    """Tell whether the likeliest cause is to be acted upon now, though batches may still seem to end."""
    return bool(findings) and findings[0].cause in AT_ONCE


# ---- which remedy -------------------------------------------------------------------------------------------


def _remedy(findings: Sequence[Finding], last: Attempt | None, limits: PolicyLimits) -> tuple[Remedy, bool]:
    """Return the remedy, and whether the user ordered it."""
    cause = findings[0].cause if findings and findings[0].confidence >= TRUSTED else causes.UNKNOWN
    own = remedies.REMEDIES.get(cause, remedies.REMEDIES[causes.UNKNOWN])
    order, setting = orders(limits.causes).get(cause, ""), "policy.causes"
    if not order and last is not None and last.code is None and own.ladder:
        # An order for stalls says nothing of crashes, nor of what no restart can help.
        order, setting = limits.on_stall, "policy.on_stall"
    ordered = remedies.ORDERS.get(order)
    if ordered is None:
        return own, False
    return ordered._replace(why=ordered.why.format(setting=f"the setting {setting}")), True


def orders(pairs: Sequence[str]) -> dict[str, str]:
    """Return cause -> order for settings like "device-wait=halve"; what is not of that form is passed by."""
    split = (pair.partition("=") for pair in pairs)
    return {cause.strip(): order.strip() for cause, _, order in split if order}


def _at_once(remedy: Remedy, last: Attempt | None) -> Decision:
    if remedy.instead in (WAIT, NOTIFY):
        return Decision(action=remedy.instead, why=remedy.why)
    if remedy.instead == FINISH:
        return Decision(action="finish", why=remedy.why, code=_own_code(last))
    return _give_up(remedy.why, last)


def _rung(remedy: Remedy, past: Past, last: Attempt, limits: PolicyLimits, *, ordered: bool) -> str | None:
    """Return the first rung, from the one that is due upwards, that can still be taken; None where there is none."""
    rungs = remedy.ladder[strikes(past, limits.healthy) - 1 :]
    if not rungs and remedy.persists:
        rungs = remedy.ladder[-1:]
    if last.fresh and not remedy.strict:
        rungs = (*rungs, SAME)
    return next((rung for rung in rungs if _is_open(rung, remedy, past, last, limits, ordered=ordered)), None)


def _is_open(
    rung: str, remedy: Remedy, past: Past, last: Attempt, limits: PolicyLimits, *, ordered: bool
) -> bool:
    """Tell whether a rung can be taken: it must change something where repeating has led nowhere."""
    if rung == SAME:
        return past.fruitless < limits.fruitless
    if rung == HALF:
        useful = past.fruitless < limits.fruitless or (remedy.persists and not ordered)
        return useful and _can_halve(past, last, limits)
    return last.device != CPU and (last.used_gpu or ordered)


def _can_halve(past: Past, last: Attempt, limits: PolicyLimits) -> bool:
    if past.whole and not limits.gives_size:
        return False
    if last.rows is None:
        return last.factor * 2 <= limits.max_factor
    return last.rows // (last.factor * 2) >= max(1, limits.min_batch)


# ---- bounds ---------------------------------------------------------------------------------------------------


def _spent_out(past: Past, limits: PolicyLimits) -> str:
    made = spent(past, limits.restart_window)
    if made < min(limits.max_restarts, KEPT - 1):
        return ""
    count = "1 restart" if made == 1 else f"{made} restarts"
    return f"{count} within {limits.restart_window / 60:.0f} minutes {'is' if made == 1 else 'are'} enough"


def _exhausted(past: Past, limits: PolicyLimits) -> str:
    if past.fruitless >= limits.fruitless:
        return f"{past.fruitless} restarts in a row came no further"
    times = strikes(past, limits.healthy)
    whole = ", its batches stay whole" if past.whole else ""
    return f"the same cause struck {times} times in the same phase{whole}, and nothing is left to try"


def _own_code(last: Attempt | None) -> int:
    """Return the exit code that the child's own end stands for: 128 + n by a signal; 0 where it did not end."""
    code = last.code if last is not None and last.code is not None else 0
    return code if code >= 0 else SIGNALLED - code


def _give_up(why: str, last: Attempt | None) -> Decision:
    return Decision(action="give_up", why=why, code=_own_code(last) or GAVE_UP)


# ---- the next attempt -----------------------------------------------------------------------------------------


def _restart(rung: str, why: str, past: Past, last: Attempt, limits: PolicyLimits) -> Decision:
    factor = last.factor * 2 if rung == HALF else last.factor
    factor = factor if past.whole else max(factor, limits.microbatches)
    device = CPU if rung == CPU else last.device
    return Decision(
        action="restart",
        why=f"{why} ({_how(rung, factor, limits)})",
        factor=factor,
        device=device,
        delay=pause(streak(past, limits.healthy), limits),
        mathematics=mathematics(factor, device, limits),
    )


def _how(rung: str, factor: int, limits: PolicyLimits) -> str:
    smaller = f"1/{factor} of the batch" if limits.gives_size else f"batches in {factor} parts"
    return {SAME: "same batch", HALF: smaller, CPU: "without the GPU"}[rung]


def pause(troubles: int, limits: PolicyLimits) -> float:
    """Return the seconds before the next attempt: none at first, then doubling, until an attempt is healthy."""
    if troubles <= 1:
        return 0.0
    return float(min(limits.backoff_cap, limits.backoff * 2.0 ** min(troubles - 2, 32)))


def mathematics(factor: int, device: str, limits: PolicyLimits = DEFAULTS) -> str:
    """Return in one sentence what differs from the training that the script describes."""
    told = [_fewer(factor, limits)] if factor > 1 else []
    if device == CPU:
        told.append("the CPU computes the same and rounds differently")
    return "; ".join(told) or "nothing changes for the mathematics of the training"


def _fewer(factor: int, limits: PolicyLimits) -> str:
    if limits.gives_size:
        return (
            f"the script is given a batch {factor} times smaller: {factor} times as many updates an epoch, each of "
            "fewer rows, at the learning rate that the script sets"
        )
    sliced = (
        f"each batch is computed in {factor} parts and applied once, so the optimizer sees the same batch (a few "
        "rows are compared first; where that changes anything, the batch stays whole); BatchNormalization layers, if "
        "there are any, see the smaller parts"
    )
    if not limits.really_smaller_batch:
        return sliced
    rate = {"off": "as it was", "linear": f"divided by {factor}", "sqrt": f"divided by {factor**0.5:.3g}"}
    return (
        f"where fit takes a batch size it is {factor} times smaller: {factor} times as many updates an epoch, the "
        f"learning rate {rate[limits.scale_lr]}; elsewhere {sliced}"
    )
