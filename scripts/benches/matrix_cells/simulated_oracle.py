"""What the documents promise for a cell of the simulated matrix, and what of it the core did not keep.

Made of promises.py and of the pages that are named beside each rule; it must import nothing of stallguard's tables.
What the pages leave open is not judged: then several answers are right here (`Ladder`).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from matrix_cells.promises import CPU, GAVE_UP, HALF, MOST_RESTARTS, NO_PROGRESS, ORDERS, REMEDIES, SAME, TIMES, Remedy
from matrix_cells.simulated_cells import ENDS, LEGITIMATE, SILENT, UNTRAINED, Cell, Wrong
from matrix_cells.simulated_play import CODES, MOST_ATTEMPTS, RECORDED, Played, Trouble
from matrix_cells.simulated_times import bounds
from stallguard.core import ledger, time_spent
from stallguard.core.actions import Action, Announce, Collect, Conclude, Diagnosed, Launch, Signal
from stallguard.core.events import ClockGap
from stallguard.core.limits import MOST_SLICES

WINDOW = 3600.0  # docs/configuration.md: policy.restart_window
LONG_HEALTH = 1800.0  # seconds; the same setting, as an attempt's age
HEALTHY = 1500.0  # seconds; docs/configuration.md: policy.healthy is 30 min, from which pauses begin anew
READING = 1.1  # seconds from a reading to the next
BESIDE = 5.0  # seconds at most from an action to the beginning, or the end, of the attempt that it is for
HELD_SHOWS = 4.0  # seconds after which a probe that does not report shows that the interpreter is held
AS_LIKELY = 0.5  # docs/detection.md: "at least half as likely as the first one"


# docs/causes.md: the causes that are true of each silence and each end.
TRUE = {
    "deadlock": {"device-wait", "host-deadlock"}, "lock": {"host-deadlock"}, "device": {"device-wait"},
    "socket": {"outside-wait", "input-starvation"}, "sleep": {"outside-wait", "input-starvation"},
    "held-idle": {"gil-held"}, "held-busy": {"gil-held", "busy-loop"}, "hung-device": {"device-wait"},
    "spin": {"busy-loop"}, "crash": {"native-crash"}, "killed": {"killed"}, "memory-kill": {"out-of-memory-kill"},
    "memory-line": {"out-of-memory"}, "exception": {"script-error"}, "exit-0": {"finished", "silent-exit"},
}  # fmt: skip


class Attempt(NamedTuple):
    """What the core did in an attempt; times in seconds on its clock, infinity: never."""

    order: Launch
    trouble: Trouble | None
    done: list[tuple[float, Action]]

    def first(self, fits: Callable[[Action], bool]) -> float:
        """Return when the first action that fits came; infinity: none did."""
        since = self.trouble.began if self.trouble else 0.0
        return min((at for at, one in self.done if at >= since and fits(one)), default=math.inf)

    def said(self, message: str) -> float:
        """Return when a message was first announced since the trouble began."""
        return self.first(lambda one: isinstance(one, Announce) and one.message == message)

    @property
    def acted(self) -> float:
        """When the process was first signalled."""
        return self.first(lambda one: isinstance(one, Signal))

    @property
    def decided(self) -> Diagnosed | None:
        """The diagnosis with the decision that ended it."""
        each = [one for _, one in self.done if isinstance(one, Diagnosed) and one.decision is not None]
        return each[-1] if each else None


def attempts(played: Played) -> list[Attempt]:
    found: list[Attempt] = []
    for at, one in played.world.done:
        if isinstance(one, Launch):
            trouble = next((it for it in played.troubles if it.attempt == one.attempt), None)
            found.append(Attempt(one, trouble, []))
        found[-1].done.append((at, one))
    return found


def wrongs(played: Played) -> list[Wrong]:
    each = attempts(played)
    checks: tuple[Callable[[Played, list[Attempt]], Iterator[Wrong]], ...] = (
        left_alone, timely, named, climbed, paused, ended, categories,
    )  # fmt: skip
    return [wrong for check in checks for wrong in check(played, each)]


# ---- when -----------------------------------------------------------------------------------------------


def left_alone(played: Played, each: list[Attempt]) -> Iterator[Wrong]:
    """docs/detection.md, "Without acting"; what works, or was stopped by its user, is never acted upon."""
    cell = played.cell
    silent = cell.silence in SILENT
    if cell.silence in ENDS or (silent and cell.acts):
        return
    for one in each:
        if one.acted < math.inf:
            yield Wrong("never acted upon", f"attempt {one.order.attempt} was signalled at {one.acted:.1f}")
        works = cell.silence in LEGITIMATE and cell.silence != "pause"
        announced = cell.left_alone == "announced" and cell.silence != "stopped"
        if (works or announced) and one.said("training.stalled") < math.inf:
            yield Wrong("no stall", f"judged a stall {one.said('training.stalled') - began(one):.1f} s into it")
        if cell.silence != "slow" and one.said("training.slow") < math.inf:
            yield Wrong("no slowness", "a silence was called slow")
    if len(each) > 1:
        yield Wrong("never acted upon", f"{len(each)} attempts")


def began(one: Attempt) -> float:
    return one.trouble.began if one.trouble else 0.0


def timely(played: Played, each: list[Attempt]) -> Iterator[Wrong]:
    """docs/detection.md, "How long a gap can last", and the table of phases in docs/configuration.md."""
    cell = played.cell
    for one in each:
        trouble = one.trouble
        if trouble is None:
            if one.said("training.stalled") < math.inf:
                yield Wrong("no stall", f"attempt {one.order.attempt} without any trouble was judged a stall")
            continue
        if trouble.kind == "stopped" and cell.left_alone != "announced":
            due = TIMES["stopped"].noticed * cell.scale
            last = due if trouble.napped < 0 else due + trouble.napped + 50.0
            yield from within("stopped", one.said("training.stalled") - trouble.began, (due, last), cell, trouble)
        if trouble.kind not in SILENT or cell.left_alone == "announced":
            continue
        promised = bounds(cell, trouble)
        noticed = min(one.said("training.suspected"), one.said("training.stalled"))
        yield from within("noticed", noticed - trouble.began, promised.noticed, cell, trouble)
        yield from within("judged", one.said("training.stalled") - trouble.began, promised.judged, cell, trouble)
        if cell.acts:
            yield from within("acted upon", one.acted - trouble.began, promised.acted, cell, trouble)


def within(what: str, seen: float, due: tuple[float, ...], cell: Cell, one: Trouble) -> Iterator[Wrong]:
    """Yield what is wrong with a time: too early by more than a reading, or too late by more than some looks."""
    low, high = due[0], due[-1]
    # Readings of the tree come each 0.25 to 2 s here and of the GPU each 2 s; evidence takes up to 2 s.
    late = 2.5 + 0.04 * high + (4.0 if cell.gpu != "none" else 0.0) + (2.0 if cell.trainings != "1" else 0.0)
    late += 2.5 if what == "acted upon" else 0.0
    if seen < low - 0.75:
        yield Wrong(what, f"{one.kind} in {one.phase}, attempt {one.attempt}: {seen:.1f} s, not before {low:.1f} s")
    elif seen > high + late and (seen < math.inf or high + late < one.lasted):
        yield Wrong(what, f"{one.kind} in {one.phase}, attempt {one.attempt}: {seen:.1f} s, due {high:.1f} s")


# ---- why, and what follows ----------------------------------------------------------------------------------


def named(played: Played, each: list[Attempt]) -> Iterator[Wrong]:
    """It names the cause; one at least half as likely as the first gives its remedy too (docs/detection.md)."""
    for one in each:
        found = one.decided
        if found is None or one.trouble is None or not found.findings:
            continue
        likely = {it.cause for it in found.findings if it.confidence >= AS_LIKELY * found.findings[0].confidence}
        if one.trouble.kind == "hung-device" and one.trouble.device == CPU:
            continue
        true = true_causes(one.trouble)
        paused = one.trouble.napped >= 0  # stallguard itself: what came in its pause is not known
        early = one.trouble.kind in ("held-idle", "held-busy") and one.acted - one.trouble.began < HELD_SHOWS
        if played.cell.stacks == "none" or paused or early:
            true.add("unknown")
        if one.trouble.kind == "held-idle" and (early or paused):
            # It is idle, and that its interpreter is held is not seen yet.
            true |= {"device-wait", "host-deadlock"}
        if not likely & true:
            text = ", ".join(f"{it.cause} {it.confidence:.2f}" for it in found.findings)
            yield Wrong("cause", f"{one.trouble.kind} in {one.trouble.phase} is called {text}")


def true_causes(one: Trouble) -> set[str]:
    """Return the causes that are true of a trouble; some depend on the phase."""
    true = set(TRUE[one.kind])
    if one.kind in SILENT and one.phase == "finishing":
        return {"exit-hang"}
    if one.kind in SILENT and one.phase == "input":
        true.add("input-starvation")
    if one.kind == "hung-device" and one.phase == "tracing":
        true.add("compiling")
    return true


class Ladder(NamedTuple):
    """How far a run is: the steps that were taken against this trouble, restarts without progress, is it further."""

    taken: tuple[str, ...] = ()
    without_progress: int = 0
    further: bool = True  # than every attempt before


class Ended(NamedTuple):
    """An attempt that is over.  `name`: its cause and phase; `step`: what the next attempt changed."""

    name: tuple[str, str]
    further: bool
    lasted: float
    step: str


def climbed(played: Played, each: list[Attempt]) -> Iterator[Wrong]:
    """docs/detection.md, "What happens after a stall": each step in its order, and no end while one is left."""
    cell, best, past, restarts = played.cell, (-1, -1), list[Ended](), list[float]()
    for one, following in itertools.zip_longest(each, each[1:]):
        found, trouble = one.decided, one.trouble
        if found is None or trouble is None or found.decision is None:
            return
        lasted = max(at for at, _ in one.done) - one.done[0][0]
        now = Ended((first_cause(one), RECORDED.get(trouble.phase, "step")), trouble.reached > best, lasted, "")
        best = max(best, trouble.reached)
        answers = set[str]()
        for at in readings(cell, [*past, now]):
            answers |= answer(cell, one, at, restarts)
        seen = step(found.decision.action, found.decision.slices, found.decision.device, one.order)
        if seen not in answers:
            text = f"attempt {trouble.attempt}, {first_cause(one)}: {seen}, not {' or '.join(sorted(answers))}"
            yield Wrong("steps", f"{text} ({found.decision.why})")
            return
        if following is None:
            return
        order = following.order
        if (order.slices, order.device, order.resume) != (found.decision.slices, found.decision.device, True):
            yield Wrong("steps", f"attempt {order.attempt} is not run as it was decided: {order}")
        restarts.append(following.done[0][0])
        past.append(now._replace(step=seen))


def readings(cell: Cell, past: list[Ended]) -> list[Ladder]:
    """Return how far the run is after its attempts so far; several answers if that cannot be known from the cell."""
    count = 0
    for one in past[1:]:
        count = 0 if one.further else count + 1
    steps = [one.step for one in past[:-1]]
    if cell.trainings == "2":  # the other training gets further as well, if it lives longer
        starts = range(len(past))
        return [Ladder(tuple(steps[at:]), no, on) for at in starts for no in starts for on in (True, False)]
    start = len(past) - 1
    while start and not (past[start].further and past[start].lasted >= LONG_HEALTH):
        if past[start].further and past[start - 1].name != past[-1].name:
            break
        start -= 1
    whole = [Ladder(tuple(steps[start:]), count, past[-1].further)]
    # Whether a process that never trained got further than none is not said.
    return whole if len(past) > 1 else [*whole, whole[0]._replace(further=False)]


def step(action: str, factor: int, device: str, order: Launch) -> str:
    if action != "restart":
        return action
    if device != order.device:
        return CPU
    return SAME if factor == order.slices else HALF if factor == 2 * order.slices else f"{factor} parts"


def changed(before: Attempt, later: Attempt) -> str:
    """Return the step by which one attempt was made of the one before."""
    return step("restart", later.order.slices, later.order.device, before.order)


def first_cause(one: Attempt) -> str:
    return one.decided.findings[0].cause if one.decided is not None and one.decided.findings else ""


def answer(cell: Cell, one: Attempt, at: Ladder, restarts: list[float]) -> set[str]:
    """Return what can follow an attempt's end by the pages."""
    found, trouble = one.decided, one.trouble
    assert found is not None and trouble is not None  # noqa: S101, PT018 - its caller has looked
    cause = first_cause(one)
    if trouble.kind in ENDS and cell.left_alone == "observed":  # "a training that crashes is not restarted"
        return {"finish", "give_up"}
    if cause not in REMEDIES:
        return {SAME, HALF, CPU, "give_up", "finish"}  # promises.py has no row of it: nothing is compared
    remedy, others = REMEDIES[cause], list[Remedy]()
    ordered = trouble.kind not in ENDS and cell.order != "auto" and bool(remedy.steps)
    if ordered:
        remedy = ORDERS[cell.order]
    else:
        least = AS_LIKELY * found.findings[0].confidence
        others = [REMEDIES[it.cause] for it in found.findings[1:] if it.confidence >= least and it.cause in REMEDIES]
    if not remedy.steps:
        return {"give_up"} if ordered else {"finish"}
    ended, most = max((when for when, _ in one.done), default=0.0), min(int(cell.max_restarts), MOST_RESTARTS)
    if sum(ended - when < WINDOW - BESIDE for when in restarts) >= most:
        return {"give_up"}
    enough = {"give_up"} if sum(ended - when < WINDOW + BESIDE for when in restarts) >= most else set[str]()
    free = free_step(
        remedy, others, at, lambda step: is_open(step, cell, trouble, at) or (ordered and step == CPU != trouble.device)
    )
    if free:
        return {free} | enough
    # "If no step is left, but the attempt got further than each before it"
    return enough | ({SAME} if at.further and cause != "native-crash" else {"give_up"})


def free_step(remedy: Remedy, others: list[Remedy], at: Ladder, opened: Callable[[str], bool]) -> str:
    """Return the first step that was not taken and is open; "" if none is left."""
    own = list(remedy.steps)
    more: list[str] = []
    for one in others:
        more += (Counter(one.steps) - Counter([*own, *more])).elements()
    for taken in at.taken:
        for steps in (own, more):
            if taken in steps:
                steps.remove(taken)
                break
    repeated = [remedy.steps[-1]] if remedy.repeats else []
    return next((step for step in (*own, *repeated, *more) if opened(step)), "")


def is_open(step: str, cell: Cell, trouble: Trouble, at: Ladder) -> bool:
    """Return whether a step can be taken: docs/detection.md, docs/batches.md, docs/configuration.md."""
    if step == SAME:
        return at.without_progress < NO_PROGRESS
    if step == CPU:
        return trouble.device != CPU and trouble.used_gpu
    parts, rows = 2 * trouble.factor, cell.known_rows
    return parts <= MOST_SLICES if rows is None else rows // parts >= int(cell.min_batch)


# ---- the end ------------------------------------------------------------------------------------------------


def ended(played: Played, each: list[Attempt]) -> Iterator[Wrong]:
    """README, "Exit codes"; the reasons for giving up name each step; nothing that would have helped was left."""
    world = played.world
    over = [(at, one) for at, one in world.done if isinstance(one, Conclude)]
    if not over and len(each) > MOST_ATTEMPTS:
        return  # it gets further each time, and more than an hour lies between the restarts
    if len(over) != 1:
        yield Wrong("the end", f"{len(over)} ends after {len(each)} attempts, in state {world.run.state}")
        return
    code, why, last = over[0][1].code, over[0][1].why, each[-1]
    trouble, decision = last.trouble, last.decided.decision if last.decided else None
    if trouble is None or trouble.ended_by_itself or (trouble.kind in LEGITIMATE):
        promised = {0}
    elif trouble.kind in ENDS:
        own = CODES[trouble.kind]
        promised = {128 - own if own < 0 else own}
    else:
        promised = {GAVE_UP}
        if decision is not None and decision.action == "finish":
            promised = {0} if first_cause(last) == "exit-hang" else set()
    if code not in promised:
        yield Wrong("exit code", f"{code}, promised {promised}: {why}")
    if decision is not None and decision.action == "give_up" and trouble is not None:
        yield from reasons(played, each, why)
        yield from untried(played.cell, each, trouble)


def untried(cell: Cell, each: list[Attempt], last: Trouble) -> Iterator[Wrong]:
    """Yield that a run was given up while the remedy of what truly befell it had a step that could be taken.

    For one trouble that comes back at the same place, without an order; the causes that were named do not matter.
    """
    plain = cell.other == "no" and cell.order == "auto" and cell.again != "further" and cell.trainings == "1"
    if not plain or len(each) > int(cell.max_restarts) or last.phase == "finishing":
        return
    taken = tuple(changed(before, later) for before, later in itertools.pairwise(each))
    at = Ladder(taken, len(each) - 1)
    left = []
    for cause in true_causes(last) & set(REMEDIES):
        repeats = REMEDIES[cause].repeats and cause == first_cause(each[-1])  # a second cause's steps come once
        remedy = REMEDIES[cause]._replace(repeats=repeats)
        left.append(free_step(remedy, [], at, lambda step: is_open(step, cell, last, at)))
    if all(left):
        yield Wrong("given up", f"after {', '.join(taken) or 'no step'}: {' or '.join(left)} is left")


def paused(played: Played, _each: list[Attempt]) -> Iterator[Wrong]:
    """docs/configuration.md, policy.backoff: none before the first restart, 2 s before the second, then doubled."""
    world = played.world
    if any(later - before > HEALTHY for (before, _), (later, _) in itertools.pairwise(world.launched)):
        return
    for number, ((exited, _), (began, _)) in enumerate(zip(world.exits, world.launched[1:], strict=False)):
        due = min(120.0, 2.0**number) if number else 0.0
        gpu = 14.0 if played.cell.gpu != "none" else 0.0  # after its end the GPU must be seen to be idle
        if not due - 0.1 <= began - exited <= due + gpu + 1.5:
            yield Wrong("pause", f"{began - exited:.1f} s before attempt {number + 2}, promised {due:.0f} s")


def reasons(played: Played, each: list[Attempt], why: str) -> Iterator[Wrong]:
    """docs/detection.md: it gives up "and names each step and why it is not taken"."""
    cell = played.cell
    if "nothing is left to try: " not in why:
        bounded = cell.order == "stop" or len(each) - 1 >= int(cell.max_restarts)
        if not bounded and first_cause(each[-1]) in REMEDIES:
            yield Wrong("reasons", f"no step is named: {why}")
        return
    parts = why.split("nothing is left to try: ")[1].split("; ")
    if len(parts) != 3:
        yield Wrong("reasons", f"{len(parts)} steps are named: {why}")
        return
    taken = Counter(changed(before, later) for before, later in itertools.pairwise(each))
    for name, text in zip((SAME, HALF, CPU), parts, strict=True):
        if "was tried" in text and not taken[name]:
            yield Wrong("reasons", f"{name} was not tried: {text}")
        if "was not seen to use a GPU" in text and any(one.trouble and one.trouble.used_gpu for one in each):
            yield Wrong("reasons", f"a GPU was used: {text}")
        if "unknown size" in text and cell.known_rows is not None:
            yield Wrong("reasons", f"the rows are known: {text}")
        if "is less than" in text and cell.known_rows is None:
            yield Wrong("reasons", f"the rows are not known: {text}")
        true = {it for one in each if one.trouble for it in TRUE[one.trouble.kind]}
        promised = {step for it in true & {first_cause(each[-1])} for step in REMEDIES[it].steps}
        if ("is no remedy" in text and name in promised) or ("not ordered" in text and cell.order == "auto"):
            yield Wrong("reasons", f"{name} is promised: {text}")


# ---- where the time went ------------------------------------------------------------------------------------


def categories(played: Played, each: list[Attempt]) -> Iterator[Wrong]:
    """docs/overnight.md, "Where the time went": each second is in the category that the plan of the cell gives it."""
    cell, world = played.cell, played.world
    if cell.trainings != "1" or len(world.launched) > 16 or cell.pause == "starved":
        return
    expected = dict.fromkeys(time_spent.CATEGORIES, 0.0)
    for begins, ends, what in played.plan:
        at = next((one for one in reversed(each) if one.done[0][0] <= begins + 1e-6), each[0])
        if what == "silence" and abs(at.said("training.stalled") - ends) <= READING:
            return  # it is judged as it ends: whether the silence was a stall is a matter of one reading
        for name, seconds in costs(at, what, begins, ends):
            expected[name] += seconds
    expected["machine_asleep"] = sum(one.seconds for one in world.events if isinstance(one, ClockGap))
    spent = ledger.spent(world.run.ledger, world.run.now)
    for name in time_spent.CATEGORIES:
        seen, due = getattr(spent, name), expected[name]
        if abs(seen - due) > 2.5 * len(each) + 0.03 * max(seen, due):
            yield Wrong("ledger", f"{name} is {seen:.1f} s, by the plan {due:.1f} s")


def costs(one: Attempt, what: str, begins: float, ends: float) -> Iterator[tuple[str, float]]:
    seconds = ends - begins
    named = {
        "start": "start_up" if one.order.attempt == 1 else "restart", "training": "training", "script": "script",
        "again": "redone_batches", "backoff": "backoff", "crash": "ending", "broken": "loss_not_finite",
    }  # fmt: skip
    phase = one.trouble.phase if one.trouble else "step"
    if what == "crash" and phase in UNTRAINED:
        what = "start"
    if what in named:
        yield named[what], seconds
        return
    usual = {"validation": "validation", "saving": "checkpoint", "between-fits": "script", "finishing": "script"}.get(
        phase, "training"
    )  # fmt: skip
    usual = {"validates": "validation", "saves": "checkpoint"}.get(one.trouble.kind if one.trouble else "", usual)
    if phase in UNTRAINED:
        usual = named["start"]
    stalled, suspected = one.said("training.stalled"), one.said("training.suspected")
    if what != "silence" or min(stalled, suspected) > ends:
        yield usual, seconds
    elif stalled > ends:
        yield usual, suspected - begins
        yield "suspected", ends - suspected
    else:
        over = min(one.acted, ends)
        judged = "stopped_by_user" if one.trouble and one.trouble.kind == "stopped" else "stalled"
        collects = one.first(lambda it: isinstance(it, Collect))
        ready = one.said("evidence.collected")
        # docs/overnight.md: all silence of a process that was stopped is that.
        evidence_took = max(0.0, min(ready, over) - collects) if judged == "stalled" else 0.0
        yield "collecting_evidence", evidence_took
        yield judged, over - begins - evidence_took
        yield "ending", ends - over
