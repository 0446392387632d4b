"""The policy: from the causes and the attempts so far to what happens now.

`decide(findings, past, limits) -> Decision`: wait, notify, restart (how, and after what pause), give up, or finish.
Which remedy a cause has is a column of core.diagnosis.causes.  Here are the bounds that no remedy crosses: the number
of restarts, the end of progress, the smallest batch.

How earlier attempts ended is a value, AttemptHistory, which it decides by.

When is the machine, not the training, the reason for a stall or an end, so that another machine can train on?
One machine alone restarts as long as a remedy is left.  A job that others could continue leaves a machine sooner, if
the setting policy.leave_machine says so (jobs of a fleet).

A wedged GPU is reported to hang each new process until the machine restarts (the reports on Metal training with mode
F10), so a second device wait with no healthy attempt in between counts as one.  A kill for lack of memory counts at
the second: the first can be a peak of another program.

This module must not look at a history or a clock.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stallguard.core.diagnosis import causes
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
from stallguard.core.events import Heartbeat
from stallguard.core.history import History
from stallguard.core.limits import DEFAULTS, MOST_SLICES, PolicyLimits
from stallguard.core.text import counted, cut
from stallguard.core.verdicts import Decision, Finding
from stallguard.errors import GAVE_UP, SIGNALLED

MOST_INSIDE = 8  # slices at most in which a step that lacked memory is trained again in its process
GAINED = 0.25  # share of a segment's own batches that must be new; one that resumes an epoch back has half at least
KEPT = 1024  # attempts; more restarts than that within a window are never allowed

Position = tuple[int, int, int, int, int]
NOTHING: Position = (0, -1, -1, -1, -1)


class PastAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """How one attempt ended.  Times in seconds on the supervisor's clock."""

    cause: str
    confidence: float
    phase: str
    slices: int
    device: str
    began: float
    ended: float
    position: Position  # how far it got; of several trainings, the one that it ended for
    fresh: bool = False  # it got further than every attempt before it
    code: int | None = None  # exit code if it ended by itself; None if it stalled
    rows: int | None = None  # of a whole batch; None: not known
    used_gpu: bool = False

    @property
    def lasted(self) -> float:
        """Seconds from its start to its end."""
        return self.ended - self.began


class AttemptHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """All attempts so far, the one that just ended last, and how far each training got at most."""

    attempts: tuple[PastAttempt, ...] = ()
    best: dict[str, Position] = {}  # of each training, by its place
    # Restarts in a row, up to now, that got no further than the attempts before them.
    restarts_without_progress: int = 0
    whole: bool = False  # slices cannot make this script's batch smaller
    # The most batches that each training had completed at the end of a segment, by place.
    batches: dict[str, int] = {}


def position(heartbeat: Heartbeat | None) -> Position:
    """Return how far a training got, so that two attempts can be compared.

    Its first number is 1 for a training that is over (core.run).  Then fit, epoch and batch if they are known,
    since a resumed attempt continues to count them; else the optimizer's own count, which a checkpoint restores; else
    the batches of this attempt.
    """
    if heartbeat is None:
        return NOTHING
    if heartbeat.epoch >= 0:
        saves = heartbeat.saves if heartbeat.batch < 0 else 0
        return (0, heartbeat.fits, heartbeat.epoch, max(heartbeat.batch, 0), saves)
    return (0, heartbeat.fits, -1, max(heartbeat.iterations, heartbeat.beats + heartbeat.skipped), 0)


def add_attempt(
    past: AttemptHistory, history: History, findings: Sequence[Finding], slices: int, device: str, began: float,
    ended: float, reached: Mapping[str, Position] | None = None, *, whole: bool = False,
) -> AttemptHistory:  # fmt: skip
    """Return the past with the attempt that is over, or about to be ended for a stall.

    `history`: of the training that it is about; `reached`: how far each training got, by place, if there are more;
    `whole`: whether slices cannot make the batch smaller, as far as the attempts so far have shown.
    """
    if reached is None:
        reached = {"": position(history.heartbeat)}
    # A training at an unknown place can be an old one under a new name, if a launcher puts the hour into its arguments:
    # as many trainings as before, and none of them further than any before, is no progress.
    farthest = max(past.best.values(), default=NOTHING)
    further = len(reached) > len(past.best) or any(
        one > past.best.get(place, farthest) for place, one in reached.items()
    )
    fresh = further and any(one > NOTHING for one in reached.values())
    # Ended otherwise than arranged, it stands in the past already, for the reason why it was to end.
    newest = past.attempts[-1] if past.attempts else None
    again = newest is not None and newest.began == began and newest.code is None
    earlier = past.attempts[:-1] if again else past.attempts
    fresh = fresh or (again and past.attempts[-1].fresh)
    cause, confidence = (findings[0].cause, findings[0].confidence) if findings else ("unknown", 0.0)
    attempt = PastAttempt(
        cause=cause, confidence=confidence, phase=history.heartbeat.phase if history.heartbeat else "importing",
        slices=slices, device=device, began=began, ended=ended, position=position(history.heartbeat), fresh=fresh,
        code=history.exited.code if history.exited else None,
        rows=history.rows, used_gpu=history.used_gpu,
    )  # fmt: skip
    return replace(
        past,
        attempts=(*earlier[1 - KEPT :], attempt),
        best={**past.best, **{place: max(one, past.best.get(place, one)) for place, one in reached.items()}},
        restarts_without_progress=0 if fresh or not earlier else past.restarts_without_progress + (not again),
        whole=whole,
    )


class TrainingProgress(NamedTuple):
    """How far one training is: its position, its batches in all attempts, and those of this one."""

    position: Position
    batches: int
    own: int


def batches_completed(heartbeat: Heartbeat | None) -> int:
    """Return the batches that a training has completed, those of earlier attempts included if they are known."""
    if heartbeat is None:
        return 0
    known = max(heartbeat.iterations, heartbeat.beats + heartbeat.skipped)
    if heartbeat.epoch < 0 or heartbeat.batches <= 0:
        return max(known, 0)
    return max(known, heartbeat.epoch * heartbeat.batches + max(heartbeat.batch, 0))


def add_segment(past: AttemptHistory, stands: Mapping[str, TrainingProgress]) -> tuple[AttemptHistory, bool]:
    """Return the past after a segment that ends as planned, and whether it got further than those before it.

    `stands`: of each training, by its place.  Segments that begin at the start again get a little more
    or less far each time, so only a good part of its own batches is progress.
    """
    farthest = max(past.best.values(), default=NOTHING)
    known = len(stands) <= len(past.best)  # one under a new name can be an old one, as in add_attempt
    further = any(
        one.position > past.best.get(place, farthest if known else NOTHING)
        and (one.position[0] == 1 or one.batches - past.batches.get(place, 0) >= GAINED * one.own)
        for place, one in stands.items()
    )
    best = {place: max(one.position, past.best.get(place, one.position)) for place, one in stands.items()}
    batches = {place: max(one.batches, past.batches.get(place, 0)) for place, one in stands.items()}
    return replace(past, best=past.best | best, batches=past.batches | batches), further


def streak(past: AttemptHistory, healthy: float) -> int:
    """Return how many attempts in a row, the last one included, ended before they were `healthy` seconds old."""
    count = 0
    for attempt in reversed(past.attempts):
        count += 1
        if attempt.fresh and attempt.lasted >= healthy:
            break
    return count


def one_trouble(past: AttemptHistory, healthy: float) -> tuple[PastAttempt, ...]:
    """Return the attempts that the last trouble ended, the last one included, with no healthy attempt in between.

    It is the same trouble if its cause and phase are the same, and also if the attempt after it got no further: a batch
    that blocks each time is in a step the first time, and in the first run of a graph right after a resume.
    """
    found: list[PastAttempt] = []
    for attempt in past.attempts[: -streak(past, healthy) - 1 : -1]:
        if found and found[-1].fresh and (attempt.cause, attempt.phase) != (found[0].cause, found[0].phase):
            break
        found.append(attempt)
    return tuple(reversed(found))


def tried(trouble: Sequence[PastAttempt]) -> list[str]:
    """Return the rungs that were taken against a trouble: what each of its attempts changed."""
    rungs = []
    for before, after in itertools.pairwise(trouble):
        to_cpu = after.device == CPU and before.device != CPU
        rungs.append(CPU if to_cpu else HALF if after.slices > before.slices else SAME)
    return rungs


def known_rows(past: AttemptHistory) -> int | None:
    """Return the rows of a whole batch, as the newest attempt reported them that did; None if none did.

    An attempt that ended in an earlier fit says nothing of the batches of this one.
    """
    fit = past.attempts[-1].position[1] if past.attempts else 0
    return next((one.rows for one in reversed(past.attempts) if one.rows and one.position[1] >= fit), None)


def spent(past: AttemptHistory, window: float) -> int:
    """Return how many attempts after the first began within the `window` seconds before the last one's end."""
    if not past.attempts:
        return 0
    now = past.attempts[-1].ended
    return sum(now - attempt.began < window for attempt in past.attempts[1:])


TRUSTED = 0.35  # confidence below which the remedy of the unknown is used
AS_LIKELY = 0.5  # of the first cause's confidence, from which on another one's remedy is tried after its own
# Seconds of a pause at most, unless the first is longer: so the restarts of a window fit into it, and are counted.
LONGEST_PAUSE = 120.0
FINISHED = "the training is finished"
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
        return Decision(action="finish", why=FINISHED, code=0)
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
    if limits.leave_machine and (reason := machine_fault(findings, past, limits.healthy)):
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
    slices = last.slices * 2 if rung == HALF else last.slices
    slices = slices if past.whole else max(slices, limits.microbatches)
    device = CPU if rung == CPU else last.device
    smaller = f"1/{slices} of the batch" if limits.gives_size else f"batches in {slices} slices"
    how = {SAME: "same batch", HALF: smaller, CPU: "without the GPU"}[rung]
    whys = (one.why for one in (remedy, *others) if rung in one.ladder)
    why = next(whys, "the training got further than before")
    return Decision(
        action="restart", why=f"{why} ({how})", slices=slices, device=device,
        delay=pause(streak(past, limits.healthy), limits), mathematics=mathematics(slices, device, limits),
    )  # fmt: skip


def slices_inside(limits: PolicyLimits) -> int:
    """Return the slices at most in which the probe trains a step that lacked memory again; 1: it does not.

    A restart with slices is the remedy that this precedes: if the user orders another one, that is taken.
    """
    ordered = orders(limits.causes)
    of_both = {ordered.get(one) for one in (causes.GPU_OUT_OF_MEMORY, causes.OUT_OF_MEMORY)}
    others = of_both & (ORDERS.keys() - {"halve"})
    return 1 if others or limits.gives_size else MOST_INSIDE


def is_urgent(findings: Sequence[Finding]) -> bool:
    """Return whether the most likely cause is to be acted upon now, even while batches still end."""
    return bool(findings) and findings[0].cause in CAUSES and CAUSES[findings[0].cause].urgent


# ---- which remedy -------------------------------------------------------------------------------------------


def _remedy(findings: Sequence[Finding], last: PastAttempt | None, limits: PolicyLimits) -> tuple[Remedy, bool]:
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
    # From here on a rung must change something.
    stuck = past.restarts_without_progress >= limits.no_progress_limit
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
    rows, parts, least = known_rows(past), last.slices * 2, max(1, limits.min_batch)
    if rows is None and parts > MOST_SLICES:
        return f"a batch of unknown size is cut into {counted(MOST_SLICES, 'slice')} at most"
    if rows is not None and rows // parts < least:
        return f"1/{parts} of a batch of {counted(rows, 'row')} is less than {counted(least, 'row')}"
    return f"{RUNGS[HALF]} was tried" if stuck and again else ""


# ---- bounds ---------------------------------------------------------------------------------------------------


def left_to_end(last: PastAttempt) -> Decision:
    """Return the decision of a run that is only observed, about an attempt that has ended by itself."""
    why = "the training ended; a run that is only observed is not restarted"
    return Decision(action="finish", why=why, code=_own_code(last))


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


def mathematics(slices: int, device: str, limits: PolicyLimits = DEFAULTS) -> str:
    """Return in one sentence what differs from the training that the script describes."""
    changes: list[str] = []
    sliced = (
        f"each batch is computed in {slices} slices and applied once, so the optimizer sees the same batch (a few "
        "rows are compared first; if that changes anything, the batch stays whole); BatchNormalization layers, if "
        "there are any, see the slices"
    )
    if slices > 1 and limits.gives_size:
        changes.append(
            f"the script is given a batch {slices} times smaller: {slices} times as many updates an epoch, each of "
            "fewer rows, at the learning rate that the script sets"
        )
    elif slices > 1 and limits.really_smaller_batch:
        rate = {"off": "as it was", "linear": f"divided by {slices}", "sqrt": f"divided by {slices**0.5:.3g}"}
        changes.append(
            f"if fit takes a batch size it is {slices} times smaller: {slices} times as many updates an epoch, the "
            f"learning rate {rate[limits.scale_lr]}; otherwise {sliced}"
        )
    elif slices > 1:
        changes.append(sliced)
    if device == CPU:
        changes.append("the CPU computes the same and rounds differently")
    return "; ".join(changes) or "neither the batch nor the device changes"


# How often in a row a cause must have occurred, with no healthy attempt in between.
TIMES = {
    causes.DEVICE_WAIT: 2,
    causes.GPU_ERROR_STICKY: 2,
    causes.GPU_MEMORY_FAULT: 2,
    causes.GPU_LOST: 1,
    causes.OUT_OF_MEMORY_KILL: 2,
    causes.STUCK_IN_KERNEL: 1,
    causes.GPU_BUSY_AFTER_KILL: 1,
    causes.MACHINE_FROZE: 1,
}


def machine_fault(findings: Sequence[Finding], past: AttemptHistory, healthy: float) -> str:
    """Return in words why this machine is the reason, "" if it is not known to be.

    `past`: with the attempt that ends last; `healthy`: seconds of progress after which an attempt counts as healthy.
    """
    if not findings or findings[0].cause not in TIMES:
        return ""
    cause = findings[0].cause
    trouble = reversed(one_trouble(past, healthy))
    times = sum(1 for _ in itertools.takewhile(lambda one: one.cause == cause, trouble))
    if times < TIMES[cause]:
        return ""
    return causes.title(cause) + (f", {times} times in a row" if times > 1 else "")
