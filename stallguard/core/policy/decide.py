"""The policy: from the causes and the attempts so far to what happens now.

`decide(findings, past, limits) -> Decision`: wait, notify, restart (how, and after what pause), give up, or finish.
Which remedy a cause has is a column of core.diagnosis.causes.  Here are the bounds that no remedy crosses: the number
of restarts, the end of progress, the smallest batch.  This module must not look at a history or a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stallguard.core.diagnosis.causes import (
    CAUSES,
    CPU,
    FINISH,
    HALF,
    NOTIFY,
    SAME,
    STOP,
    UNKNOWN,
    WAIT,
    Remedy,
    no_restart,
)
from stallguard.core.diagnosis.clues.script import PYTHON_ERROR
from stallguard.core.limits import DEFAULTS, MOST_SLICES, PolicyLimits
from stallguard.core.policy.attempts import (
    KEPT,
    AttemptHistory,
    PastAttempt,
    known_rows,
    one_trouble,
    spent,
    streak,
    tried,
)
from stallguard.core.policy.machine_fault import fault
from stallguard.core.text import counted, cut
from stallguard.core.verdicts import Decision, Finding
from stallguard.errors import GAVE_UP, SIGNALLED

TRUSTED = 0.35  # confidence below which the remedy of the unknown is used
AS_LIKELY = 0.5  # of the first cause's confidence, from which on another one's remedy is tried after its own
# Seconds of a pause at most, unless the first is longer: so the restarts of a window fit into it, and are counted.
LONGEST_PAUSE = 120.0
LONGEST_ERROR = 200  # characters of the error in the reason of an end
RUNGS = {SAME: "a new process with the same batch", HALF: "a smaller batch", CPU: "the CPU"}


# What settings order in place of a cause's own remedy: policy.on_stall for all stalls, policy.causes for one.
ORDERS: dict[str, Remedy] = {
    "restart": Remedy((SAME,), "{setting} asks for a restart", persists=True),
    "halve": Remedy((HALF,), "{setting} asks for a smaller batch", persists=True),
    "cpu": Remedy((CPU, SAME), "{setting} asks for the CPU", persists=True),
    "stop": no_restart(STOP, "{setting} asks to stop at a stall"),
    "notify": no_restart(NOTIFY, "{setting} asks for a notification and nothing else"),
}


def decide(findings: Sequence[Finding], past: AttemptHistory, limits: PolicyLimits) -> Decision:
    """Return what to do about the attempt that stands last in `past`, given why it ended or stalls."""
    last = past.attempts[-1] if past.attempts else None
    if last is not None and last.code == 0:
        return Decision(action="finish", why="the training is finished", code=0)
    remedy, ordered = _remedy(findings, last, limits)
    if remedy.instead in (WAIT, NOTIFY):
        return Decision(action=remedy.instead, why=remedy.why)
    if remedy.instead == FINISH:
        of_first = findings[0].evidence if findings else ()
        errors = [one.removeprefix(PYTHON_ERROR) for one in of_first if one.startswith(PYTHON_ERROR)]
        # With its error: `status` and the outcome of a job have this sentence alone.
        why = f"{remedy.why}: {cut(errors[0], LONGEST_ERROR)}" if errors else remedy.why
        return Decision(action="finish", why=why, code=_own_code(last))
    if remedy.instead:
        return _give_up(remedy.why, last)
    if last is None:
        return Decision(action="restart", why=remedy.why)
    if limits.leave_machine and (reason := fault(findings, past, limits.healthy)):
        return _give_up(f"another machine can continue the training; here: {reason}", last)
    made = spent(past, limits.restart_window)
    if made >= min(limits.max_restarts, KEPT - 1):
        count = counted(made, "restart")
        minutes = counted(round(limits.restart_window / 60), "minute")
        return _give_up(f"{count} within {minutes} {'is' if made == 1 else 'are'} enough", last)
    others = () if ordered else _others(findings, remedy, limits)
    rung, closed = _rung(remedy, others, past, last, limits, ordered=ordered)
    if not rung:
        trouble = one_trouble(past, limits.healthy)
        since = f"the training stalled or failed {counted(len(trouble), 'time')}"
        if len(trouble) > 1 and not any(one.fresh for one in trouble[1:]):
            since += " without getting past it"
        if past.restarts_without_progress >= limits.no_progress_limit:
            since = f"{counted(past.restarts_without_progress, 'restart')} in a row made no progress"
        return _give_up(f"{since}, and nothing is left to try: {'; '.join(closed)}", last)
    factor = last.factor * 2 if rung == HALF else last.factor
    factor = factor if past.whole else max(factor, limits.microbatches)
    device = CPU if rung == CPU else last.device
    smaller = f"1/{factor} of the batch" if limits.gives_size else f"batches in {factor} parts"
    how = {SAME: "same batch", HALF: smaller, CPU: "without the GPU"}[rung]
    whys = (one.why for one in (remedy, *others) if rung in one.ladder)
    why = next(whys, "the training got further than before")
    return Decision(
        action="restart",
        why=f"{why} ({how})",
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
    leaves_alone = limits.on_stall == "notify"  # also what would be ended because no restart helps
    if not order and last is not None and last.code is None and (own.ladder or leaves_alone):
        # Any other order for stalls does not apply to crashes, nor to causes that no restart helps against.
        order, setting = limits.on_stall, "policy.on_stall"
    ordered = ORDERS.get(order)
    if ordered is None:
        return own, False
    return ordered._replace(why=ordered.why.format(setting=f"the setting {setting}")), True


def orders(pairs: Sequence[str]) -> dict[str, str]:
    """Return cause -> order for settings like "device-wait=halve"; other text is ignored."""
    split = (pair.partition("=") for pair in pairs)
    return {cause.strip(): order.strip() for cause, _, order in split if order}


def _others(findings: Sequence[Finding], remedy: Remedy, limits: PolicyLimits) -> tuple[Remedy, ...]:
    """Return the remedies of the causes that fit about as well: which one comes first can be a matter of 1 %.

    Not of a cause for which the user ordered another remedy.
    """
    least = AS_LIKELY * findings[0].confidence if findings else 0.0
    ordered = {cause for cause, order in orders(limits.causes).items() if order in ORDERS}
    likely = (one.cause for one in findings if one.confidence >= least and one.cause not in ordered)
    remedies = (CAUSES[cause].remedy for cause in likely if cause in CAUSES)
    return tuple(one for one in remedies if one is not remedy)


def _rung(
    remedy: Remedy, others: Sequence[Remedy], past: AttemptHistory, last: PastAttempt, limits: PolicyLimits, *,
    ordered: bool,
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the first rung of the ladders that was not taken yet and can be; else "", and why each rung is closed.

    A rung that was taken against this trouble for another cause counts as taken: evidence differs between attempts.
    """
    own = list(remedy.ladder)
    further: list[str] = []
    for one in others:  # a rung that it takes twice is taken once more after a remedy that takes it once
        known = Counter([*own, *further])
        further += [rung for rung, times in Counter(one.ladder).items() for _ in range(times - known[rung])]
    ladder, done = {*own, *further}, tried(one_trouble(past, limits.healthy))
    for rung in done:
        for rungs in (own, further):
            if rung in rungs:
                rungs.remove(rung)
                break
    repeated = [remedy.ladder[-1]] if remedy.persists else []
    onward = [SAME] if last.fresh and not remedy.strict else []
    left = [*own, *repeated, *further, *onward]
    again = HALF in done and not remedy.persists
    closed = {rung: _why_closed(rung, past, last, limits, ordered=ordered, again=again) for rung in RUNGS}
    free = next((rung for rung in left if not closed[rung]), "")
    if free:
        return free, []
    foreign = "is not ordered" if ordered else "is no remedy for this cause"
    return "", [
        f"{name} {foreign}" if rung not in ladder
        else closed[rung] or f"{name} was tried {counted(done.count(rung), 'time')}"
        for rung, name in RUNGS.items()
    ]  # fmt: skip


def _why_closed(
    rung: str, past: AttemptHistory, last: PastAttempt, limits: PolicyLimits, *, ordered: bool, again: bool
) -> str:
    """Return why a rung cannot be taken now, "" if it can.  `again`: a smaller batch was tried, and must help."""
    stuck = (
        past.restarts_without_progress >= limits.no_progress_limit
    )  # from here on a rung must change something
    if rung == SAME:
        return f"{RUNGS[SAME]} would change nothing" if stuck else ""
    if rung == CPU:
        if last.device == CPU:
            return f"{RUNGS[CPU]} was tried"
        # Of any attempt: one that stalls before its first batch has not used it yet.
        used = ordered or any(one.used_gpu for one in past.attempts)
        return "" if used else "the training was not seen to use a GPU"
    if past.whole and not limits.gives_size:
        return "its batches stay whole"
    rows, parts, least = known_rows(past), last.factor * 2, max(1, limits.min_batch)
    if rows is None and parts > MOST_SLICES:
        return f"a batch of unknown size is cut into {counted(MOST_SLICES, 'part')} at most"
    if rows is not None and rows // parts < least:
        return f"1/{parts} of a batch of {counted(rows, 'row')} is less than {counted(least, 'row')}"
    return f"{RUNGS[HALF]} was tried" if stuck and again else ""


# ---- bounds ---------------------------------------------------------------------------------------------------


def left_to_end(last: PastAttempt) -> Decision:
    """Return the decision of a run that is only observed, about an attempt that has ended by itself."""
    return Decision(
        action="finish", why="the training ended, and observe mode restarts nothing", code=_own_code(last)
    )


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
    return float(min(max(LONGEST_PAUSE, limits.backoff), limits.backoff * 2.0 ** min(troubles - 2, 32)))


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
    return "; ".join(changes) or "neither the batch nor the device changes"
