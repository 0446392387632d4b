"""The policy: from the causes and the attempts so far to what happens now.

`decide(findings, past, limits) -> Decision`: wait, notify, restart (how, and after what pause), give up, or finish.
Which remedy a cause has is a column of core.diagnosis.causes.  Here are the bounds that no remedy crosses: the number
of restarts, the end of progress, the smallest batch.  This module must not look at a history or a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallguard.core.diagnosis.causes import CAUSES, UNKNOWN
from stallguard.core.diagnosis.remedy import CPU, FINISH, HALF, NOTIFY, SAME, WAIT, Remedy
from stallguard.core.limits import DEFAULTS, PolicyLimits
from stallguard.core.policy.attempts import KEPT, AttemptHistory, PastAttempt, spent, streak, strikes
from stallguard.core.policy.machine_fault import fault
from stallguard.core.policy.remedies import ORDERS
from stallguard.core.verdicts import Decision, Finding
from stallguard.errors import GAVE_UP, SIGNALLED

TRUSTED = 0.35  # confidence below which the remedy of the unknown is used


def decide(findings: Sequence[Finding], past: AttemptHistory, limits: PolicyLimits) -> Decision:
    """Return what to do about the attempt that stands last in `past`, given why it ended or stalls."""
    last = past.attempts[-1] if past.attempts else None
    if last is not None and last.code == 0:
        return Decision(action="finish", why="the training is finished", code=0)
    remedy, ordered = _remedy(findings, last, limits)
    if remedy.instead in (WAIT, NOTIFY):
        return Decision(action=remedy.instead, why=remedy.why)
    if remedy.instead == FINISH:
        return Decision(action="finish", why=remedy.why, code=_own_code(last))
    if remedy.instead:
        return _give_up(remedy.why, last)
    if last is None:
        return Decision(action="restart", why=remedy.why)
    if limits.leave_machine and (reason := fault(findings, past, limits.healthy)):
        return _give_up(f"another machine can continue the training; here: {reason}", last)
    made = spent(past, limits.restart_window)
    if made >= min(limits.max_restarts, KEPT - 1):
        count = "1 restart" if made == 1 else f"{made} restarts"
        minutes = f"{limits.restart_window / 60:.0f} minutes"
        return _give_up(f"{count} within {minutes} {'is' if made == 1 else 'are'} enough", last)
    rung = _rung(remedy, past, last, limits, ordered=ordered)
    if rung is None and past.restarts_without_progress >= limits.no_progress_limit:
        return _give_up(f"{past.restarts_without_progress} restarts in a row made no progress", last)
    if rung is None:
        times, whole = strikes(past, limits.healthy), ", its batches stay whole" if past.whole else ""
        why = f"the same cause occurred {times} times in the same phase{whole}, and nothing is left to try"
        return _give_up(why, last)
    factor = last.factor * 2 if rung == HALF else last.factor
    factor = factor if past.whole else max(factor, limits.microbatches)
    device = CPU if rung == CPU else last.device
    smaller = f"1/{factor} of the batch" if limits.gives_size else f"batches in {factor} parts"
    how = {SAME: "same batch", HALF: smaller, CPU: "without the GPU"}[rung]
    return Decision(
        action="restart",
        why=f"{remedy.why} ({how})",
        factor=factor,
        device=device,
        delay=pause(streak(past, limits.healthy), limits),
        mathematics=mathematics(factor, device, limits),
    )


def is_urgent(findings: Sequence[Finding]) -> bool:
    """Return whether the most likely cause is to be acted upon now, even while batches still end."""
    return bool(findings) and findings[0].cause in CAUSES and CAUSES[findings[0].cause].urgent


# ---- which remedy -------------------------------------------------------------------------------------------


def _remedy(
    findings: Sequence[Finding], last: PastAttempt | None, limits: PolicyLimits
) -> tuple[Remedy, bool]:
    """Return the remedy, and whether the user ordered it."""
    cause = findings[0].cause if findings and findings[0].confidence >= TRUSTED else UNKNOWN
    own = CAUSES.get(cause, CAUSES[UNKNOWN]).remedy  # a cause of another version's journal is unknown here
    order, setting = orders(limits.causes).get(cause, ""), "policy.causes"
    if not order and last is not None and last.code is None and own.ladder:
        # An order for stalls does not apply to crashes, nor to causes that no restart helps against.
        order, setting = limits.on_stall, "policy.on_stall"
    ordered = ORDERS.get(order)
    if ordered is None:
        return own, False
    return ordered._replace(why=ordered.why.format(setting=f"the setting {setting}")), True


def orders(pairs: Sequence[str]) -> dict[str, str]:
    """Return cause -> order for settings like "device-wait=halve"; other text is ignored."""
    split = (pair.partition("=") for pair in pairs)
    return {cause.strip(): order.strip() for cause, _, order in split if order}


def _rung(
    remedy: Remedy, past: AttemptHistory, last: PastAttempt, limits: PolicyLimits, *, ordered: bool
) -> str | None:
    """Return the first rung, from the one that is due upwards, that can still be taken; None if there is none."""
    rungs = remedy.ladder[strikes(past, limits.healthy) - 1 :]
    if not rungs and remedy.persists:
        rungs = remedy.ladder[-1:]
    if last.fresh and not remedy.strict:
        rungs = (*rungs, SAME)

    # After restarts without progress a rung must change something.
    progress = past.restarts_without_progress < limits.no_progress_limit
    if last.rows is None:
        divisible = last.factor * 2 <= limits.max_factor
    else:
        divisible = last.rows // (last.factor * 2) >= max(1, limits.min_batch)
    can_halve = divisible and (not past.whole or limits.gives_size)
    is_open = {
        SAME: progress,
        HALF: can_halve and (progress or (remedy.persists and not ordered)),
        CPU: last.device != CPU and (last.used_gpu or ordered),
    }
    return next((rung for rung in rungs if is_open[rung]), None)


# ---- bounds ---------------------------------------------------------------------------------------------------


def _own_code(last: PastAttempt | None) -> int:
    """Return the exit code that the child's own end stands for: 128 + n by a signal; 0 if it did not end."""
    code = last.code if last is not None and last.code is not None else 0
    return code if code >= 0 else SIGNALLED - code


def _give_up(why: str, last: PastAttempt | None) -> Decision:
    return Decision(action="give_up", why=why, code=_own_code(last) or GAVE_UP)


def pause(troubles: int, limits: PolicyLimits) -> float:
    """Return the seconds before the next attempt: none at first, then doubling, until an attempt is healthy."""
    if troubles <= 1:
        return 0.0
    return float(min(limits.backoff_cap, limits.backoff * 2.0 ** min(troubles - 2, 32)))


def mathematics(factor: int, device: str, limits: PolicyLimits = DEFAULTS) -> str:
    """Return in one sentence what differs from the training that the script describes."""
    changes: list[str] = []
    sliced = (
        f"each batch is computed in {factor} parts and applied once, so the optimizer sees the same batch (a few "
        "rows are compared first; if that changes anything, the batch stays whole); BatchNormalization layers, if "
        "there are any, see the smaller parts"
    )
    if factor > 1 and limits.gives_size:
        changes.append(
            f"the script is given a batch {factor} times smaller: {factor} times as many updates an epoch, each of "
            "fewer rows, at the learning rate that the script sets"
        )
    elif factor > 1 and limits.really_smaller_batch:
        rate = {"off": "as it was", "linear": f"divided by {factor}", "sqrt": f"divided by {factor**0.5:.3g}"}
        changes.append(
            f"if fit takes a batch size it is {factor} times smaller: {factor} times as many updates an epoch, the "
            f"learning rate {rate[limits.scale_lr]}; otherwise {sliced}"
        )
    elif factor > 1:
        changes.append(sliced)
    if device == CPU:
        changes.append("the CPU computes the same and rounds differently")
    return "; ".join(changes) or "the training results are unaffected"
