"""Acting before memory runs out: what follows from the forecast, on a machine that would freeze or kill the training.

On unified memory a leak ends in swapping, a frozen Mac or a kernel panic, after which no program saves anything; on
Linux in a SIGKILL.  So a training is ended in time, with a checkpoint, and a new process goes on from it.

    memory runs out within    what is done
    30 min (`latest`)         it is announced, once an attempt
    10 min (`earliest`)       the probe is asked for a checkpoint; at the pressure "critical" as well
    30 s (`earliest`)         the training is started again, after a batch: the same batch after a leak, half of it if
                              single steps need more and more

If other processes take the memory, the first two are done: a new process of the training would gain nothing.

Nothing is ended without a checkpoint to go on from, nor if the policy would give up: then it is announced, and the
training goes on.  The budgets of the policy hold as for a stall.  `policy.memory_ahead` switches all of it off.

While the first epoch lasts, a cache that fills looks like a leak, and shortly after it other things still settle.  So
until the training is three times as old as its first pass, and ten minutes, only the last half minute counts, and only
if little is left.  Without epochs, that holds for an hour.  Growth in steps counts sooner: caches have none.

macOS calls its memory pressure normal until half of the memory is wired or compressed [xnu
doc/vm/memorystatus_notify.md], so nothing is ended while it does: the pages that vm_stat counts as available are few
there long before memory is short.  Swap is not counted as room of a training: it crawls there.  For other processes it
is: the machine goes on until the compressor and the swap are full.

The forecast
------------

What counts is the highest footprint so far (the *mark*), not the footprint itself.  A shuffle buffer that fills in each
epoch, a validation that takes memory and gives it back, garbage that waits for its collection: all of them come back to
the same mark.  A leak pushes it up without end.

Growth is believed if the mark rose several times by a notable amount, rose lately, and does not slow down: a cache that
is full, or one model that was loaded, rises once or stops.  It is a leak if the lowest footprint rose with the mark.
Else single steps need more and more, and more must be seen: steps of different size, met at random, set new marks too.

How fast the mark rises is taken over the whole time that was watched and over its second half.  The faster of both
gives `earliest`, the slower `latest`.  If the largest of several similar steps of a leak does not fit any more, as when
each validation keeps its predictions, the next one can come at any moment: `earliest` is zero.

Nothing is predicted for longer than HORIZON times the time that was watched.

Pure, as core.fold.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from msgspec.structs import replace

from stallguard.core import lifecycle, policy, shutdown, trainings
from stallguard.core.actions import Action, Announce, Ask, Diagnosed
from stallguard.core.diagnosis import causes, diagnose, metrics
from stallguard.core.diagnosis.clues import script
from stallguard.core.history import History, TimedReading
from stallguard.core.limits import Limits
from stallguard.core.readings import Memory, Process
from stallguard.core.run import MemoryWatch, Run, Training, is_muted, with_attempt
from stallguard.core.shutdown import Step, attempts_so_far
from stallguard.core.text import duration, quantity
from stallguard.core.verdicts import Decision, Finding

OFF, NO_RESTART = "off", ("notify", "stop")  # values of policy.memory_ahead and policy.on_stall
TELL, SAVE, END = 1800.0, 600.0, 30.0  # seconds until memory runs out
FIRST = 60.0  # seconds of an attempt in which growth for which the one before was ended can be back
EVERY, CLOSE = 5.0, 1.0  # seconds between two looks, usually and while it is near
SAVED_WITHIN = 15.0  # seconds that the training has for the checkpoint that it was asked for
ENDED_WITHIN = 10.0  # seconds that it then has to end after a batch, before SIGTERM
AGAIN = 600.0  # seconds between two requests for a checkpoint
PASSES, YOUNG, LONG = 3.0, 600.0, 3600.0  # x the first pass; seconds; seconds without epochs
TIGHT = 0.12  # of what there is: the room, and END the seconds, from which growth counts before that
WARM_UP = 0.25  # of an attempt's growth that does not count while it is in its first epoch
FAST = 0.01  # of what there is, within FAST_WITHIN: a growth that is looked at closely
FAST_WITHIN = 15.0  # seconds
READ = 3  # readings of the memory that are compared with the footprint
FRESH = 60.0  # seconds for which a reading of the memory counts
BACK = 0.5  # of an earlier attempt's growth: more than that is back, besides what a leak grew since
MOST = 32.0  # hours; more is not worth a number


def begun(run: Run) -> MemoryWatch:
    """Return the watch of a new attempt; it looks closely if the one before was ended for its memory."""
    return MemoryWatch(grown=run.current.memory.grown, is_near=run.current.memory.grown is not None)


def look(run: Run, limits: Limits) -> Step:
    """Return the run, and what is to be done before its memory runs out."""
    watch = run.current.memory
    if limits.policy.memory_ahead == OFF:
        return run, []
    every = CLOSE if watch.is_near else EVERY
    if run.state != lifecycle.RUNNING or run.current.decision is not None or run.now - watch.at < every:
        return run, []
    training, ahead = _nearest(run)
    alone = len(trainings.judged(run)) == 1
    others = taken_by_others(run.history, run.now) if ahead is None and alone else None
    pressure = _pressure(run.history, run.now)
    near = any(one.earliest <= SAVE for one in (ahead, others) if one is not None)
    again = watch.grown is not None and run.now - run.current.launched < FIRST
    watch = replace(watch, at=run.now, is_near=near or again or _grows_fast(run.history, run.now))
    run = with_attempt(run, memory=watch)
    actions: list[Action] = []
    if ahead is not None:
        run, actions = _told(run, ahead)
    if others is not None:
        run, actions = _told(run, others, by_others=True)
    if near or pressure == "critical":
        run, asked = _asked_to_save(run, training, limits)
        actions += asked
    if ahead is None:  # if memory is short for another reason, a restart does not help
        return run, actions
    # The system knows better than a forecast: what it calls normal is not about to freeze, what it calls critical is.
    is_due = ahead.earliest <= END and pressure != "normal"
    if is_due or pressure == "critical":
        run, ended = _ended(run, training, ahead, limits)
        actions += ended
    return run, actions


# ---- the forecast ---------------------------------------------------------------------------------------------------


def _nearest(run: Run) -> tuple[Training, Forecast | None]:
    """Return the training whose memory runs out first, and when."""
    each = [(one, _returned(run, one.history) or expected(one.history, run.now)) for one in trainings.judged(run)]
    found = [(one, ahead) for one, ahead in each if ahead is not None]
    return min(found, key=lambda pair: pair[1].earliest) if found else (run.training, None)


def _returned(run: Run, history: History) -> Forecast | None:
    """Return when memory runs out if the growth for which an earlier attempt was ended is back; None if it is not.

    A leak begins at nothing in a new process.  Steps that need more and more go on from where they were.  They look
    like a leak if an allocator keeps what it has, or if they follow each other so closely that no reading falls between
    them: then the lowest footprint grows as well.
    """
    ceiling, points = _ceiling(history, run.now), history.growth.points
    if run.current.memory.grown is None or ceiling is None or not points:
        return None
    if sum(one.at >= points[0][0] for one in history.memory[-READ:]) < READ:
        return None  # what was left before the first batches says nothing
    first, last, rate = run.current.memory.grown
    began, mark = points[0][0], max(high for _, _, high, _ in points)
    if mark < first + BACK * (last - first) + rate * (run.now - began) or not _rises(history, rate, run.now):
        return None
    room = max(0.0, ceiling * (1.0 - MARGIN) - mark)
    return Forecast(room / rate, room / rate, rate, room, leaks=False)


def _rises(history: History, rate: float, now: float) -> bool:
    """Return whether the highest footprint rose in the attempt's second half, at half of `rate` (bytes/s) at least."""
    began = history.growth.points[0][0]
    middle = (began + now) / 2.0
    seen = [(one.at, one.reading.footprint or 0) for one in history.process]
    trail = seen if seen[0][0] <= began else [(at, high) for at, _, high, _ in history.growth.points]
    early = max((used for at, used in trail if began <= at <= middle), default=0)
    late = max((used for at, used in trail if at > middle), default=0)
    return early > 0 and late - early >= LEAK.even * rate * (now - middle)


def expected(history: History, now: float) -> Forecast | None:
    """Return when the memory of a training runs out; None if there is no reason to think that it does.

    Over the whole attempt, and over its newest readings: a growth that began lately shows there alone.
    """
    growth, ceiling = history.growth, _ceiling(history, now)
    if ceiling is None or not growth.points:
        return None
    began, settled = growth.points[0][0], growth.settled
    recent = tuple(
        (seen.at, footprint, footprint, seen.reading.peak or 0)
        for seen in history.process
        if (footprint := seen.reading.footprint) is not None and seen.at >= began
    )
    since = settled if settled is not None else began + WARM_UP * (now - began)
    found = []
    for trail in (growth.points, recent):
        counted = [point for point in trail if point[0] >= since]
        first = counted[0][0] if counted else now
        before = [point for point in growth.points if point[0] < first - growth.spacing]
        mark = max((high for _, _, high, _ in before), default=0)
        highest = max((max(high, peak) for _, _, high, peak in before), default=0)
        ahead = forecast([point[:3] for point in counted], ceiling, mark) or forecast(
            [(at, low, max(high, peak)) for at, low, high, peak in counted], ceiling, highest
        )
        if ahead is not None and (
            now - began >= _settling(history, steps=ahead.earliest == 0.0)
            or (ahead.earliest <= END and ahead.room <= TIGHT * ceiling)
        ):
            found.append(ahead)
    return min(found, key=lambda one: one.earliest, default=None)


def taken_by_others(history: History, now: float) -> Forecast | None:
    """Return when the other processes of the machine have taken what is left; None if nothing shows that they do.

    What they use is what the machine holds, in memory, compressed and in swap, without the footprint of the training.
    One program that is started is no trend.
    """
    points, newest = history.others.points, metrics.newest(history.memory, now, FRESH)
    if not points or newest is None or newest.most is None or now - points[0][0] < YOUNG:
        return None
    footprint = (newest.held or 0) - points[-1][2]
    trail = [point[:3] for point in points]
    # Also over the newest half and quarter, because the growth can have begun lately.
    for lately in (trail, trail[len(trail) // 2 :], trail[3 * len(trail) // 4 :]):
        ahead = forecast(lately, newest.most - footprint)
        if ahead is not None and ahead.leaks and now - lately[0][0] >= YOUNG and grows_all_the_time(lately):
            return ahead
    return None


def _settling(history: History, *, steps: bool) -> float:
    """Return the age in seconds from which growth counts, or growth in steps."""
    growth, heartbeat = history.growth, history.heartbeat
    if heartbeat is None or heartbeat.epoch < 0:
        return YOUNG if steps else LONG
    if growth.settled is None:
        return math.inf
    passes = PASSES * (growth.settled - growth.points[0][0])
    return passes if steps else max(YOUNG, passes)


def _ceiling(history: History, now: float) -> float | None:
    """Return the footprint at which nothing is left: what was left, and the footprint at the same time.

    The median of the last readings, because two sensors never read at quite the same time.
    """
    memory = [seen for seen in history.memory[-READ:] if now - seen.at <= FRESH]
    ceilings = [
        left + used
        for seen in memory
        if (left := room(seen.reading)) is not None and (used := _footprint_at(history.process, seen.at)) is not None
    ]
    return statistics.median_low(ceilings) if ceilings else None


def _footprint_at(readings: Sequence[TimedReading[Process]], at: float) -> int | None:
    """Return the footprint that was read nearest to this time.  The newest are looked at first: few are newer."""
    nearest: TimedReading[Process] | None = None
    for seen in reversed(readings):
        if seen.reading.footprint is None:
            continue
        if nearest is not None and abs(seen.at - at) > abs(nearest.at - at):
            break
        nearest = seen
    return None if nearest is None else nearest.reading.footprint


def room(memory: Memory | None) -> float | None:
    """Return the bytes that can still be had, of the machine and of the limit in force; None if neither is known."""
    if memory is None:
        return None
    left = [] if memory.available is None else [memory.available]
    if memory.limit is not None and memory.limit_used is not None:
        left.append(max(0, memory.limit - memory.limit_used))
    return min(left, default=None)


def _pressure(history: History, now: float) -> str | None:
    newest = metrics.newest(history.memory, now, FRESH)
    return None if newest is None else newest.pressure


def _grows_fast(history: History, now: float) -> bool:
    """Return whether the footprint grows so fast that the next readings must come singly (loop.py)."""
    ceiling = _ceiling(history, now)
    rise = metrics.rise(history.process, lambda seen: seen.footprint, now, FAST_WITHIN)
    return ceiling is not None and rise is not None and rise >= FAST * ceiling


# ---- what follows -----------------------------------------------------------------------------------------------


def _told(run: Run, ahead: Forecast, *, by_others: bool = False) -> Step:
    watch, is_far = run.current.memory, min(ahead.latest, ahead.earliest + SAVE) > TELL
    if is_far or (watch.others_announced if by_others else watch.announced):
        return run, []
    if by_others:
        run = with_attempt(run, memory=replace(watch, others_announced=True))
        return run, [Announce("memory.others", _facts(ahead))]
    run = with_attempt(run, memory=replace(watch, announced=True))
    finding = _finding(run.history, ahead, run.now)
    advice = Announce("stall.advice", {"text": finding.advice[0]})
    return run, [Diagnosed(incident=0, findings=(finding,)), Announce("memory.trend", _facts(ahead)), advice]


def _asked_to_save(run: Run, training: Training, limits: Limits) -> Step:
    """Ask for a checkpoint, if the training can make one, and was not asked lately."""
    watch, heartbeat, greeted = run.current.memory, training.heartbeat, training.history.greeted
    can = (heartbeat is not None and heartbeat.saves > 0) or (greeted is not None and "checkpoint" in greeted.hooks)
    if limits.observe or not can or run.now - watch.asked < AGAIN:
        return run, []
    run = with_attempt(run, memory=replace(watch, asked=run.now, saves=heartbeat.saves if heartbeat else 0))
    return run, [Ask(attempt=run.current.number, command="save"), Announce("memory.checkpoint")]


def _ended(run: Run, training: Training, ahead: Forecast, limits: Limits) -> Step:
    """Start the training again, once the checkpoint is there."""
    watch = run.current.memory
    saves = training.heartbeat.saves if training.heartbeat is not None else 0
    if saves <= watch.saves and run.now - watch.asked < SAVED_WITHIN:
        return run, []
    found = (_finding(training.history, ahead, run.now),)
    tried = attempts_so_far(run, found)
    decision = policy.decide(found, tried, replace(limits.policy, on_stall="auto"))  # it is no stall
    why = _obstacle(run, saves, decision, limits)
    if why:
        if watch.left_alone:
            return run, []
        run = with_attempt(run, memory=replace(watch, left_alone=True))
        return run, [Announce("memory.left_alone", {"why": why})]
    points = training.history.growth.points
    grown = (points[0][2], max(high for _, _, high, _ in points), ahead.rate)
    run = replace(with_attempt(run, findings=found, memory=replace(watch, grown=grown)), past=tried)
    why = f"memory runs out {_when(ahead)}; {decision.why}"
    run, actions = shutdown.arrange(run, decision, why, limits, ENDED_WITHIN)
    return run, [Diagnosed(incident=0, findings=found, decision=decision), *actions]


def _obstacle(run: Run, saves: int, decision: Decision, limits: Limits) -> str:
    """Return why the training is not started again; "" if it is."""
    if limits.observe:
        return "this run is only observed"
    if is_muted(run):
        return "stall handling is paused"
    for setting, value in (("memory_ahead", limits.policy.memory_ahead), ("on_stall", limits.policy.on_stall)):
        if value in NO_RESTART:
            return f"the setting policy.{setting} is {value}"
    if not saves:
        return "there is no checkpoint of this attempt to go on from"
    return "" if decision.action == "restart" else decision.why


def _finding(history: History, ahead: Forecast, now: float) -> Finding:
    # By the script: steps of half the batch would not need less of it.
    is_kept = script.grown(history) is not None
    cause = causes.MEMORY_RUNS_OUT if ahead.leaks or is_kept else causes.STEPS_NEED_MORE
    facts = _facts(ahead)
    evidence = f"{facts['what']} by {facts['hourly']} an hour, and {facts['room']} are left"
    return Finding(
        cause=cause, confidence=0.9 if ahead.latest <= TELL else 0.6, evidence=(evidence,),
        advice=diagnose.fitting(causes.CAUSES[cause].advice, script.still(history, now)),
    )  # fmt: skip


def _facts(ahead: Forecast) -> dict[str, str]:
    what = "the memory of the training grows" if ahead.leaks else "the most that a step needs grows"
    hourly, left = quantity(ahead.rate * 3600, "bytes"), quantity(ahead.room, "bytes")
    return {"when": _when(ahead), "what": what, "hourly": hourly, "room": left}


def _when(ahead: Forecast) -> str:
    """Return the two times in words."""
    early, late = duration(ahead.earliest), duration(ahead.latest) if math.isfinite(ahead.latest) else ""
    if ahead.earliest < CLOSE:
        return "at any moment"
    if not late or ahead.latest > MOST * 3600:
        return f"in {early} at the earliest"
    return f"in {early}" if early == late else f"in {early} to {late}"


Points = Sequence[tuple[float, int, int]]  # seconds, lowest and highest bytes from then until the next point

LEAST_POINTS = 6
LEAST_GROWTH = 32 << 20  # bytes; allocators round up by less
GROWTH_SHARE = 0.02  # of what there is: a smaller growth is no trend
NOTABLE = 0.33  # of the mean rise from point to point
LATELY = 2.0  # x the longest time between two rises: a mark that rested for longer has come to rest
HORIZON = 1.0  # x the seconds watched: so long, growth that levels off like a logarithm goes on as before
MARGIN = 0.03  # of what there is: the system and a checkpoint need some; reclaim begins before the last page
BASE_SHARE = 0.5  # of the growth of the mark that the lowest footprint shares in a leak
QUARTERS, QUARTER_SHARE = 4, 0.33  # parts of the time; of the mean rise of a part
SIMILAR, STEP = 0.5, 0.33  # of the largest rise: another step of its size, and the usual rise between steps


class Sure(NamedTuple):
    """What makes a growth believed.  `rises`: of the mark; `even`: rate of the second half, as a share of the whole."""

    rises: int
    even: float


LEAK = Sure(3, 0.5)  # one rise is a model that was loaded, two can be two of them
# Of n peaks of random height, the mean number that set a new mark is ln n: in the second half of 64, a sixth of them.
PEAKS = Sure(8, 0.66)


class Forecast(NamedTuple):
    """`earliest`, `latest`: seconds until memory runs out; `rate`: bytes a second; `room`: bytes left.

    `leaks`: the footprint between the steps grows as well, so a new process gets it back; if not, single steps need
    more and more.
    """

    earliest: float
    latest: float
    rate: float
    room: float
    leaks: bool


def grows_all_the_time(points: Points) -> bool:
    """Return whether the highest footprint rose in each quarter of the time: one program that is started rises once."""
    quarter, total = len(points) // QUARTERS, points[-1][2] - points[0][2]
    highs = [points[index * quarter][2] for index in range(QUARTERS)] + [points[-1][2]]
    rises = [after - before for before, after in pairwise(highs)]
    return quarter > 0 and total > 0 and min(rises) >= QUARTER_SHARE * total / QUARTERS


def forecast(points: Points, ceiling: float, mark: int = 0) -> Forecast | None:
    """Return when the footprint reaches `ceiling` (bytes); None if it does not grow, or too little is known.

    `points`: of the time that counts, the oldest first; `mark`: the highest footprint before them.
    """
    if len(points) < LEAST_POINTS or ceiling <= 0:
        return None
    marks = list(accumulate((high for _, _, high in points), max, initial=mark))[1:]
    times = [at for at, _, _ in points]
    total, watched, middle = marks[-1] - marks[0], times[-1] - times[0], len(times) // 2
    if watched <= 0 or total < max(LEAST_GROWTH, GROWTH_SHARE * ceiling):
        return None
    leaks = _leaks(points, total)
    sure = LEAK if leaks else PEAKS
    whole, late = total / watched, (marks[-1] - marks[middle]) / (times[-1] - times[middle])
    if late < sure.even * whole or not _goes_on(times, marks, sure.rises):
        return None
    room = max(0.0, ceiling * (1.0 - MARGIN) - marks[-1])
    step = _step(marks) if leaks else 0
    earliest = 0.0 if step and step >= room else room / max(whole, late)
    if earliest > HORIZON * watched:
        return None
    return Forecast(earliest, room / min(whole, late), whole, room, leaks)


def _leaks(points: Points, total: int) -> bool:
    """Return whether the lowest footprint grew with the highest."""
    quarter = max(1, len(points) // 4)
    first, last = (min(low for _, low, _ in part) for part in (points[:quarter], points[-quarter:]))
    return last - first >= BASE_SHARE * total * (len(points) - quarter) / len(points)


def _goes_on(times: Sequence[float], marks: Sequence[int], least: int) -> bool:
    """Return whether the mark rose `least` times, and lately."""
    notable = NOTABLE * (marks[-1] - marks[0]) / (len(marks) - 1)
    steps = zip(times[1:], pairwise(marks), strict=True)
    rises = [at for at, (before, after) in steps if after - before >= notable]
    if len(rises) < least:
        return False
    longest = max(later - earlier for earlier, later in pairwise([times[0], *rises]))
    return times[-1] - rises[-1] <= LATELY * longest


def _step(marks: Sequence[int]) -> int:
    """Return the largest rise of the mark if it is a step, and not the only one of its size; else 0.

    Growth without steps rises by as much from each point to the next.
    """
    rises = sorted((after - before for before, after in pairwise(marks)), reverse=True)
    is_step = rises[1] >= SIMILAR * rises[0] and rises[len(rises) // 2] <= STEP * rises[0]
    return rises[0] if is_step else 0
