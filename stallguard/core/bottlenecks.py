"""What makes a training slow, worst first: one rule a kind of bottleneck.

`Work` has what is known of one training's time: its profile, how it went since the beginning, and sums over both, in
seconds; "unknown" is None, never zero.  A rule makes of it what its kind cost, where, and the numbers that show it, or
None unless it is sure.  Its thresholds are shares of the time that was watched: below them a training is healthy, or
could hardly become faster.  `scripts/bench slow` measures them on trainings with one bottleneck each.

`bottlenecks` makes one of what two rules say of one place, and leaves out what is small beside the whole.  This module
must not decide what to do: slow is not stalled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from stallguard.core import bottleneck_kinds
from stallguard.core.diagnosis import diagnose, metrics
from stallguard.core.diagnosis.clues import machine
from stallguard.core.diagnosis.clues import script as script_clues
from stallguard.core.events import Heartbeat
from stallguard.core.history import History, Stage
from stallguard.core.profile import FEEDER, PAUSED, TRAINING, Function, Profile, Spot
from stallguard.core.text import count, duration, per_second, quantity
from stallguard.core.verdicts import Bottleneck

TRACING = ("tracing", "first run")
CHECKING = ("validation", "prediction")
STALLED = 0.5  # of the time between two stages, from which it is no example of the training
BATCHES = ("step", "between", "input")  # phases in which batches are trained


class Work(msgspec.Struct, frozen=True):
    """A training so far.  `stages`: at each profile, the oldest first; the last one is the present."""

    history: History
    stages: tuple[Stage, ...]

    @property
    def profile(self) -> Profile:
        """Where the time went since the training began."""
        return self.stages[-1].profile

    @property
    def heartbeat(self) -> Heartbeat:
        """The newest record."""
        return self.stages[-1].heartbeat

    @property
    def total(self) -> float:
        """The seconds that the samples cover, without stalls and without the probe's own work."""
        return self.profile.watched

    def phases(self, names: Iterable[str]) -> float:
        """Return the time of the training thread in some phases."""
        return sum(self.profile.phases.get(name, 0.0) for name in names)

    def spots(self, role: str, which: Callable[[Spot], bool] = lambda _spot: True) -> list[Spot]:
        """Return the places of the script in which a thread of `role` spent time, most time first."""
        spots = (spot for spot in self.profile.spots if spot.phase not in PAUSED)
        return [spot for spot in spots if spot.role == role and spot.file and which(spot)]

    def of_training(self, which: Callable[[Spot], bool] = lambda _spot: True) -> list[Spot]:
        """Return the places of the training thread."""
        return self.spots(TRAINING, which)

    def rate(self, counter: str) -> float | None:
        """Return how much a field of Stage rose a second since the first stage that knows it; None if none is known.

        `cpu` and `system`: cores that the tree, or the system's work for it, used; `run_queue`: threads that waited for
        a core; `major_faults`: page-ins; `throttled`: share of the time in which a quota kept the tree from running.
        """
        known = [(stage, value) for stage in self.stages if (value := getattr(stage, counter)) is not None]
        passed = rise = 0.0
        for (one, before), (later, after) in pairwise(known):
            span = later.at - one.at
            # Else a stall, of which it would be the rate.
            if later.profile.paused - one.profile.paused < STALLED * span:
                passed, rise = passed + span, rise + after - before
        return max(0.0, rise) / passed if passed > 0 else None


def seconds(spots: Sequence[Spot]) -> float:
    """Return the time of some places together."""
    return sum(spot.seconds for spot in spots)


def heaviest(spots: Sequence[Spot]) -> Spot | None:
    """Return the place to name: of the function with the most time, the line with the most time; None if there is none.

    Places of one line in several phases count together.
    """
    functions: dict[tuple[str, str], float] = defaultdict(float)
    lines: dict[tuple[str, str, int], float] = defaultdict(float)
    for spot in spots:
        functions[spot.file, spot.function] += spot.seconds
        lines[spot.file, spot.function, spot.line] += spot.seconds
    if not lines:
        return None
    best = max(lines, key=lambda line: (functions[line[:2]], lines[line]))
    return next(spot for spot in spots if (spot.file, spot.function, spot.line) == best)


INPUT_FROM, CALLBACK_FROM, SAVING_FROM, CHECKING_FROM, SCRIPT_FROM = 0.25, 0.15, 0.15, 0.35, 0.25
TRACING_FROM, LOCK_FROM, PACE_FROM = 0.25, 0.15, 0.25
TRACES = 0.05  # graphs traced a batch
# In all; a training that traces each graph once, with validation and prediction, has some 3 to 8.
LEAST_TRACES = 15
KERAS = ("keras.", "tf_keras.")  # modules of its functions
NATIVE_CALLS = ("hand", "torch", "mlx")  # sources of beats (wire.SOURCES) of loops whose steps no hook brackets
SURE_INPUT = 0.85  # of the time in the functions of an input pipeline: nothing else can be the limit
LIKELY_INPUT = 0.4  # the same, if nothing computes beside them
IDLE_CORES = 1.4  # below it, nothing but the one thread that prepares the input computes
IDLE_GPU = 0.5  # utilisation
SMALL_BATCH, SHORT_STEP = 4, 0.005  # rows, seconds: a step in which the device has next to nothing to compute
# Of the time of tracing after the first profile that goes into making models.  Small models take 10 %, a training that
# keeps its model none; the samples of half a minute show it to a few percent.
REBUILDING = 0.03
FALLEN = 0.6  # of the earlier pace
QUEUE_FROM = 0.35  # seconds of waiting for a core a second of computing, where no other process disturbs: 0.1
WANTED = 0.5  # cores that the tree computes with or waits for: below that it waits for something else
OTHERS_FROM = 0.25  # of the machine's cores that other processes use
PAGING_FROM = 10.0  # page-ins a second: a disk that is slow gives no more, and what they cost decides
BLOCKED_FROM = 0.1  # of the readings, in which the training's process waits in the system for a page
PAGE_IN = 100e-6  # seconds a page-in takes from a solid-state disk
FLOAT64 = 0.5  # of the computing time that float32 saves: the numbers are half as long


def _found(kind: str, work: Work, cost: float, place: Spot | Function | None = None, *evidence: str) -> Bottleneck:
    cost = min(cost, work.total)
    file, line, where = (place.file, place.line, place.where) if place is not None else ("", 0, "")
    scene = script_clues.still(work.history, work.stages[-1].at)
    advice = diagnose.fitting(bottleneck_kinds.KINDS[kind].advice, scene, place=where)
    return Bottleneck(kind, round(cost, 1), round(cost / work.total, 3), where, file, line, evidence, advice)


# ---- the script ---------------------------------------------------------------------------------------------


def waits_for_input(work: Work) -> Bottleneck | None:
    """The training thread waits for the next batch, or the functions that prepare it take all the time.

    The wait is seen if the iterator is called in Python (eager loops, PyTorch).  Keras fetches inside the compiled
    step: there the time of generators and mapped functions counts, if nothing computes beside them.
    """
    waited = work.of_training(_is_input)
    functions = [one for one in work.profile.functions if one.purpose == "input"]
    feeders = work.spots(FEEDER, lambda spot: spot.feeds)  # in other threads a library calls them for data
    prepared = max(sum(one.seconds for one in functions), _longest(feeders))
    shared = prepared / work.total
    busy = shared >= SURE_INPUT or (shared >= LIKELY_INPUT and _nothing_computes(work))
    cost = max(seconds(waited), min(prepared, work.phases(BATCHES)) if busy else 0.0)
    if cost < INPUT_FROM * work.total:
        return None
    place: Spot | Function | None = heaviest(feeders)
    if functions and functions[0].seconds > seconds([one for one in feeders if one.function == functions[0].function]):
        place = functions[0]
    place = place or heaviest(waited)
    evidence = []
    if isinstance(place, Function) and place.calls:
        each = quantity(place.seconds / place.calls, "s")
        evidence.append(f"{place.function}() was called {count(place.calls, 'time', 'times')}, {each} each")
    cores = work.rate("cpu")
    if cores is not None:
        idle = cores < 0.1  # noqa: PLR2004
        evidence.append("the processor idled meanwhile" if idle else f"{cores:.1f} cores were in use on average")
    return _found(bottleneck_kinds.INPUT, work, cost, place, *evidence)


def _is_input(spot: Spot) -> bool:
    """Return whether the training thread waits for data there: for the pipeline, a file or a host."""
    reads = spot.does == "io" and "callback" not in spot.called_by and spot.phase != "checkpoint"
    return spot.feeds or spot.does == "iterator" or spot.phase == "input" or reads


def _longest(feeders: list[Spot]) -> float:
    """Return the time of the feeding function with the most time: several of them run side by side."""
    place = heaviest(feeders)
    return seconds([one for one in feeders if place and one.function == place.function])


def _nothing_computes(work: Work) -> bool:
    """Return whether the device idles, or else the processor, but for the thread that prepares the input."""
    busy = [seen.reading.utilisation for seen in work.history.device if seen.reading.used_by_run]
    known = [share for share in busy if share is not None]
    if known:
        return sum(known) / len(known) < IDLE_GPU
    cores = work.rate("cpu")
    return cores is not None and cores < IDLE_CORES


def callback(work: Work) -> Bottleneck | None:
    """The script's own code in a callback of the framework, validation and saving in it apart."""
    phases = (*CHECKING, *TRACING, "checkpoint")
    spots = work.of_training(lambda spot: "callback" in spot.called_by and spot.phase not in phases)
    spots = [spot for spot in spots if spot.does != "lock"]
    if seconds(spots) < CALLBACK_FROM * work.total:
        return None
    batches = work.heartbeat.beats
    each = f"{quantity(seconds(spots) / batches, 's')} a batch" if batches else ""
    return _found(bottleneck_kinds.CALLBACK, work, seconds(spots), heaviest(spots), *filter(None, (each,)))


def script(work: Work) -> Bottleneck | None:
    """The script's own Python code in its loop or in the step, which no framework compiles."""
    # PyTorch, JAX and MLX compute in native calls without a Python frame, at a line of the script.
    own = ("sleep",) if work.heartbeat.source in NATIVE_CALLS else ("sleep", "user")
    # What the script does before and after its training is not the training's; a loop by hand knows no phases.
    phases = (*BATCHES, "epoch start", "epoch end") + (("importing", "idle") if work.heartbeat.source == "hand" else ())
    spots = []
    for spot in work.of_training(lambda spot: spot.phase in phases and not spot.feeds):
        is_own = spot.does in own and not spot.calls.startswith(KERAS)
        is_called = spot.called_by != "" and spot.phase == "step"
        if (is_own or is_called) and "callback" not in spot.called_by:
            spots.append(spot)
    functions = [one for one in work.profile.functions if one.purpose == "step"]
    inside = sum(one.seconds for one in functions)
    if seconds(spots) + inside < SCRIPT_FROM * work.total:
        return None
    place: Spot | Function | None = heaviest(spots)
    if functions and inside > seconds(spots):
        place = functions[0]
    return _found(bottleneck_kinds.SCRIPT, work, seconds(spots) + inside, place)


def lock(work: Work) -> Bottleneck | None:
    """The training thread waits for a lock, a queue or an event of the script."""
    spots = work.of_training(lambda spot: spot.does == "lock" and not spot.feeds)
    if seconds(spots) < LOCK_FROM * work.total:
        return None
    other = heaviest(work.spots(FEEDER, lambda spot: not spot.feeds))
    numbers = []
    if other:
        numbers.append(f"meanwhile another thread was {'in' if '()' in other.where else 'at'} {other.where}")
    return _found(bottleneck_kinds.LOCK, work, seconds(spots), heaviest(spots), *numbers)


def saving(work: Work) -> Bottleneck | None:
    """Checkpoints that the script saves."""
    spent = work.phases(("checkpoint",))
    saves = work.heartbeat.saves if work.profile.saves is None else work.profile.saves
    if spent < SAVING_FROM * work.total or not saves:
        return None
    place = heaviest(work.of_training(lambda spot: spot.phase == "checkpoint"))
    each = f"{count(saves, 'save', 'saves')}, {quantity(spent / saves, 's')} each"
    return _found(bottleneck_kinds.CHECKPOINTS, work, spent, place, each)


def checking(work: Work) -> Bottleneck | None:
    """Validation that takes as long as half of the training, or longer."""
    spent, beats, checks = work.phases(CHECKING), work.heartbeat.beats, work.heartbeat.checks
    if spent < CHECKING_FROM * work.total or not beats:
        return None
    place = heaviest(work.of_training(lambda spot: spot.phase in CHECKING))
    numbers = f"{count(checks, 'batch', 'batches')} of validation beside {beats} of training"
    return _found(bottleneck_kinds.VALIDATION, work, spent, place, numbers)


def tracing(work: Work) -> Bottleneck | None:
    """Graphs that are traced again and again; a model that is built anew each time is the reason, or arguments are."""
    spent, building = _tracing_time(work)
    traces, beats = work.heartbeat.traces, work.heartbeat.beats
    if spent < TRACING_FROM * work.total or traces < LEAST_TRACES or traces < TRACES * beats:
        return None
    numbers = f"{count(traces, 'graph', 'graphs')} for {count(beats, 'batch', 'batches')}"
    built = work.of_training(_builds)
    # What is built once, before the first batch, is in the first profile already: only what comes later counts.
    first = Work(work.history, work.stages[:1])
    before, built_before = _tracing_time(first) if len(work.stages) > 1 else (0.0, 0.0)
    if building - built_before > REBUILDING * (spent - before):
        return _found(bottleneck_kinds.REBUILT, work, spent, heaviest(built), numbers)
    spots = work.of_training(lambda spot: spot.phase in TRACING)
    return _found(bottleneck_kinds.RETRACING, work, spent, heaviest(spots) or heaviest(built), numbers)


def _tracing_time(work: Work) -> tuple[float, float]:
    """Return the time of tracing graphs and making models, and that of making models alone, s."""
    building = seconds(work.of_training(_builds))
    return work.phases(TRACING) + building, building


def _builds(spot: Spot) -> bool:
    """Return whether a model or a layer is made there.  A call of a model can be the training itself."""
    module, _, function = spot.calls.rpartition(".")
    makes = function in ("__init__", "__new__", "Input", "add", "build", "compile", "clone_model")
    is_model = module.startswith(KERAS) and (".models" in module or ".layers" in module or ".trainer" in module)
    return makes and is_model and spot.phase not in TRACING


def double_precision(work: Work) -> Bottleneck | None:
    """A model that computes in float64."""
    if work.history.dtype != "float64":
        return None
    computing = min(work.profile.executing, work.phases(("step",)))
    return _found(bottleneck_kinds.DOUBLE, work, FLOAT64 * computing, None, "the model's layers compute in float64")


def tiny_batches(work: Work) -> Bottleneck | None:
    """Batches of so few rows that a step is over in milliseconds: starting it takes longer than computing it."""
    rows, batches, spent = work.history.rows, work.heartbeat.beats, work.phases(BATCHES)
    if not rows or rows > SMALL_BATCH or not batches:
        return None
    each = spent / batches
    if each > SHORT_STEP:
        return None
    # What a step costs hardly depends on its rows here, so batches of 4 times the rows take a quarter of the steps.
    numbers = f"a batch of {count(rows, 'row', 'rows')} takes {quantity(each, 's')}"
    return _found(bottleneck_kinds.TINY, work, 0.75 * spent, None, numbers)


def pace(work: Work) -> Bottleneck | None:
    """Batches that take longer and longer, and what grew with them."""
    known = [stage for stage in work.stages if stage.heartbeat.fits == work.heartbeat.fits]
    spans = [
        (later, batches, passed)
        for stage, later in pairwise([None, *known] if known[0] is work.stages[0] else known)
        if later is not None
        and (batches := later.profile.beats - (stage.profile.beats if stage else 0)) > 0
        and (passed := _batch_time(later) - (_batch_time(stage) if stage else 0.0)) > 0
    ]
    if len(spans) < 3:  # noqa: PLR2004 - two points are no trend
        return None
    paces = [batches / passed for _, batches, passed in spans]
    third = max(1, len(paces) // 3)
    first, last = max(paces[:third]), sorted(paces[-third:])[third // 2]
    falls = sum(later < earlier for earlier, later in pairwise(paces))
    if last > FALLEN * first or falls < 0.6 * (len(paces) - 1):
        return None
    cost = sum(passed - batches / first for _, batches, passed in spans)
    if cost < PACE_FROM * work.total:
        return None
    place = _grown(spans[0][0].profile.spots, spans[0][0].profile.beats, work)
    since = duration(sum(passed for _, _, passed in spans))
    numbers = [f"from {quantity(first, '')} to {per_second(last)} within {since}"]
    footprints = [stage.footprint for stage in known if stage.footprint]
    if footprints and footprints[-1] > 1.2 * footprints[0]:
        numbers.append(
            f"memory grew with it, from {quantity(footprints[0], 'bytes')} to {quantity(footprints[-1], 'bytes')}"
        )
    return _found(bottleneck_kinds.PACE, work, cost, place, *numbers)


def _batch_time(stage: Stage) -> float:
    """Return the seconds in which batches had been trained by then, without tracing, validation and checkpoints."""
    return sum(stage.profile.phases.get(name, 0.0) for name in BATCHES)


def _grown(before: tuple[Spot, ...], batches: int, work: Work) -> Spot | None:
    """Return the place whose time a batch grew most since an earlier profile of `batches` batches."""
    earlier = {(spot.role, spot.phase, spot.file, spot.line): spot.seconds for spot in before}
    more = work.profile.beats - batches
    if not batches or more <= 0:
        return None

    def growth(spot: Spot) -> float:
        was = earlier.get((spot.role, spot.phase, spot.file, spot.line), 0.0)
        return (spot.seconds - was) / more - was / batches

    places = [*work.of_training(), *work.spots(FEEDER)]
    best = max(places, key=growth, default=None)
    return best if best is not None and growth(best) > 0 else None


# ---- the machine ---------------------------------------------------------------------------------------------


def quota(work: Work) -> Bottleneck | None:
    """A control group's quota keeps the training from running."""
    share = work.rate("throttled")
    if share is None or share < OTHERS_FROM:
        return None
    cores = work.rate("cpu")
    used = f"; {cores:.1f} cores were used on average" if cores is not None else ""
    numbers = f"{min(1.0, share):.0%} of the time held back{used}"
    return _found(bottleneck_kinds.QUOTA, work, min(1.0, share) * work.total, None, numbers)


def crowded(work: Work) -> Bottleneck | None:
    """Threads that wait for a core while others use it: a low priority is the reason, or other processes are."""
    cores, queue = work.rate("cpu"), work.rate("run_queue")
    if not cores or queue is None or cores + queue < WANTED or queue / cores < QUEUE_FROM:
        return None
    seen = [(one.reading.cores, one.reading.idle, one.reading.busiest) for one in work.history.machine]
    readings = [(count, idle, busy) for count, idle, busy in seen if idle is not None and count is not None]
    if not readings:
        return None
    all_cores = readings[-1][0]
    others = sum(count_of * (1.0 - idle) for count_of, idle, _ in readings) / len(readings) - cores
    if others < OTHERS_FROM * all_cores:
        return None
    cost = work.total * queue / (queue + cores)
    names = ", ".join(dict.fromkeys(name for _, _, busiest in reversed(readings) for name in busiest))
    numbers = [f"others use {others:.1f} of {all_cores} cores" + (f": {names}" if names else "")]
    if machine.in_background.test(script_clues.still(work.history, work.stages[-1].at)):
        return _found(bottleneck_kinds.PRIORITY, work, cost, None, "macOS runs it in the background", *numbers)
    nice = [seen.reading.nice for seen in work.history.process if seen.reading.nice is not None]
    if nice and nice[-1] > 0:
        return _found(bottleneck_kinds.PRIORITY, work, cost, None, f"it runs with nice {nice[-1]}", *numbers)
    return _found(bottleneck_kinds.BUSY, work, cost, None, *numbers)


def swapping(work: Work) -> Bottleneck | None:
    """Pages that are read back from the disk."""
    rate = work.rate("major_faults")
    if rate is None or rate < PAGING_FROM:
        return None
    readings = [seen.reading for seen in work.history.memory if seen.reading.stall_full is not None]
    stalled = sum(one.stall_full or 0.0 for one in readings) / len(readings) if readings else 0.0
    states = [seen.reading.state for seen in work.history.process if seen.reading.state]
    blocked = states.count("uninterruptible") / len(states) if states else 0.0  # in the kernel, for a page
    if blocked >= BLOCKED_FROM:  # the system reads pages, and takes others away to make room for them
        blocked += work.rate("system") or 0.0
    cost = work.total * min(1.0, max(stalled, blocked, rate * PAGE_IN))
    return _found(bottleneck_kinds.SWAP, work, cost, None, f"{quantity(rate, '')} page-ins a second")


def hot(work: Work) -> Bottleneck | None:
    """A processor whose speed the system limits because of its heat."""
    readings = [seen.reading for seen in work.history.machine]
    slowed = [one for one in readings if one.thermal in ("serious", "critical")]
    if len(slowed) < 0.5 * len(readings) or not slowed:
        return None
    limits = [one.cpu_limit for one in slowed if one.cpu_limit]
    lost = 1.0 - limits[-1] if limits else 0.3  # the fastest reports lose 30 % and more (metal throttling)
    return _found(bottleneck_kinds.HOT, work, lost * work.total, None, f"the system reports heat: {slowed[-1].thermal}")


def growing(work: Work) -> Bottleneck | None:
    """Memory that grows without end is no loss of time yet: it is named if the machine begins to swap."""
    trend = metrics.growth(work.history)
    found = swapping(work)
    if trend is None or found is None or trend.rising < 0.8:  # noqa: PLR2004
        return None
    return _found(bottleneck_kinds.LEAK, work, found.seconds, None, f"{quantity(trend.slope * 3600, 'bytes')} an hour")


RULES = (
    waits_for_input, callback, script, lock, saving, checking, tracing, double_precision, tiny_batches, pace,
    quota, crowded, swapping, hot, growing,
)  # fmt: skip


LEAST_TIME = 10.0  # seconds of samples from which they say something
EXPLAINS = 0.3  # of the time: swapping that takes so much is the reason for what else takes long
LEAST_SHARE = 0.10  # of the time, below which a bottleneck is not worth a change


def bottlenecks(history: History) -> tuple[Bottleneck, ...]:
    """Return what makes a training slow so far, the one that cost most first; empty for a healthy one."""
    if not history.stages or not history.stages[-1].heartbeat.beats:
        return ()
    work = Work(history, history.stages)
    if work.total < LEAST_TIME:
        return ()
    found = [one for rule in RULES if (one := rule(work)) is not None and one.share >= LEAST_SHARE]
    return tuple(sorted(_merged(_explained(found)), key=lambda one: -one.seconds))


def _merged(found: list[Bottleneck]) -> list[Bottleneck]:
    """Make one of a falling pace and of the place that grew with it: the user has one thing to change."""
    falling = next((one for one in found if one.kind == bottleneck_kinds.PACE), None)
    same = next(
        (one for one in found if one is not falling and falling and one.line and _place(one) == _place(falling)),
        None,
    )  # fmt: skip
    if falling is None or same is None:
        return found
    whole = replace(
        falling,
        seconds=max(falling.seconds, same.seconds),
        share=max(falling.share, same.share),
        evidence=(
            *falling.evidence,
            f"{bottleneck_kinds.KINDS[same.kind].title} took {same.share:.0%} of the time",
            *same.evidence,
        ),
        advice=same.advice,
    )
    return [whole, *(one for one in found if one is not falling and one is not same)]


def _explained(found: list[Bottleneck]) -> list[Bottleneck]:
    """Leave out the script's own code and a falling pace if memory is swapped: a line that waits for pages is why."""
    swap = next((one for one in found if one.kind == bottleneck_kinds.SWAP and one.share >= EXPLAINS), None)
    effects = [one for one in found if one.kind in (bottleneck_kinds.SCRIPT, bottleneck_kinds.PACE)]
    if swap is None or not effects:
        return found
    place = max(effects, key=lambda one: (one.line > 0, one.seconds))
    named = replace(
        swap, where=place.where, file=place.file, line=place.line, seconds=max(swap.seconds, place.seconds),
        share=max(swap.share, place.share),
    )  # fmt: skip
    return [named, *(one for one in found if one is not swap and one not in effects)]


def _place(one: Bottleneck) -> tuple[str, int]:
    return one.file, one.line
