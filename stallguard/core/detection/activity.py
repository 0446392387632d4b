"""What the process tree did inside the gap: deadlock, external wait, spin, working, shared device, or unknown.

A gap alone is not a stall; what the process does meanwhile decides.  The class is made from the trailing window of
readings, and each class keeps since when it has held without a break.  An idle tree in which no thread can wake up by
itself is a deadlock; any other idleness is an external wait.  The wait sites of all threads show which of the two it is
(the census, on Linux), and so does the Python frame in which the training's thread waits (PythonWait).

A lock of Python is released by Python code, which no GPU runs.  So it is a deadlock beside any GPU: one that is busy
for other programs, one of which nothing shows whose its work is, one that cannot be read.

For an idle tree there are two sources: the census of the wait sites (host/linux/thread_census.py; macOS has none), and
the frame, which shows what the training's thread waits for, and whether another Python thread could end that wait
(probe/wait_evidence.py).

With a census, the census decides, and the frame can only speak against a deadlock: a script that sleeps, reads from a
socket or waits with a timeout is none, even if the census took its thread for one of the runtime's own timers, nor is
a function of the script that the library called in another thread, and that does so. The same holds for a call of the
training library in a job with a connection to another host: the library can read its data there in threads of its own.
The reverse does not hold: a lock in the frame does not outweigh a thread of the census that something could wake.
Two kinds of threads aside: those of a GPU's driver, and those with a timer, as long as too few censuses have shown how
many of these the runtime has.  Both are native, and what is said below of a system without a census holds for them.

Without a census the frame decides alone, and it does not show native threads.  They need not be seen, because a lock of
Python is released by Python code.  That code runs in a Python thread, which has a frame, or in a native thread that
calls Python when it is done: a client of a remote service with callbacks, or a runtime.  TensorFlow calls Python only
for generators and `py_function`, and the training awaits their result inside the library, not in a lock of its own.  So
a lock is a deadlock only if the tree is one process, because a worker process could release it, and if it is known
whether the tree has a connection to another host: with one, `remote_deadlock` holds as with a census.  What is left is
a program without any connection whose native thread is idle for longer than the threshold and then calls Python.

This module must not judge how long is too long.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from stallguard.core.detection.python_wait import HELD, PythonWait, deadlocked_from
from stallguard.core.learned import Runs
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Process

# Wait sites (Process.census) at which something other than the tree's own threads can wake a thread.
_WAKERS = frozenset(("poll", "sock", "read", "write", "sync", "disk", "driver", "other"))
_WAKERS_OF_LOCKS = _WAKERS - {"driver"}  # a GPU's driver wakes what waits for the device, and runs no Python code
_RARE = 0.05  # share of censuses that can show fewer timers than the runtime has


def waits_outside(reading: Process, wakers: frozenset[str] = _WAKERS) -> bool:
    """Return whether a census shows a thread that something other than the tree's own threads can wake.

    Other threads that wait with a timer aside: the runtime has some too.  `wakers`: the sites of the others.
    """
    # A script that sleeps in its own loop continues by itself, even if its steps sleep as well.
    sites = {site for site, threads in (reading.census or {}).items() if threads}
    return reading.main_site == "sleep" or not wakers.isdisjoint(sites)


def count_timers(sites: dict[str, int]) -> int:
    """Return how many threads wait with a timer."""
    return sites.get("sleep", 0) + sites.get("timed", 0)


def own_timers(counts: dict[int, int]) -> int:
    """Return how many timers the runtime has by itself: nearly the fewest that a healthy step showed.

    `counts`: number of timers -> weight of the censuses that showed it.  Not the fewest: in 2-5 % of the censuses the
    thread of one timer runs, so a long night has such a census.  For the same reason one census is not enough, unless
    no thread ran at that moment.
    """
    rare, passed = max(1.0, _RARE * sum(counts.values())), 0
    for value in sorted(counts):
        passed += counts[value]
        if passed > rare:
            return value
    return 0


DEADLOCK, EXTERNAL, SPIN, WORKING, UNKNOWN = "deadlock", "external wait", "spin", "working", "unknown"
# Its GPU is busy, and nothing shows whether with its work or with another program's: as long as work.
SHARED = "shared device"
# Of a verdict: its thread waits for a GPU that only reports that it is busy, or that does nothing.
BUSY_DEVICE, IDLE_DEVICE = "busy device", "idle device"

_POINTS = 16  # readings kept beside the newest, at most; four a second fill half of this in the window
_CENSUSES = 256  # sum of the weights of counted censuses above which all of them are halved
_SURE = 2  # weight of a census in which no thread ran, so that it shows every timer; any other weighs 1
_KNOWN = 8  # sum of the weights of counted censuses from which it is known how many timers the runtime has
_ENOUGH = 5  # censuses, one a second, after which it is known what recently started threads do
_SHORTEST = 0.9  # seconds of readings that give a rate: processor time is counted in hundredths of a second
_LEAST_CPU = 0.05  # cores; below this the quotient of run-queue wait and run time is noise
_WORK_FROM = 0.5  # seconds into a gap from which work counts; before, the window still holds the last batches
_WEIGHT = 0.02  # of a new value in a moving mean over healthy steps
_CROWDING_SECONDS = 15.0  # time constant of the moving mean `crowding`
# A reading comes once a second, so idleness that begins this early (seconds) began with the gap.
_ONSET = 1.25
# Power of a device that repeats one kernel without end is flat; that of a training moves with its steps.
_FLAT = 0.15  # of its highest value
# Seconds in which a program that shares its GPU with ten others had its turn: the readings between show it idle.
_TURNS = 20.0
_UNEXPLAINED = 0.1  # least of Activity.unexplained that is work; a Mac's counters and utilisation are of other times
_WEIGHT_OF_REST = 0.2  # of a new value in that mean
_LATE_DEVICE = 6.0  # seconds into a gap from which on its readings are all of the gap: one each 2 s, of the time before


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One reading on the watched clock.

    The counters are those of readings.Process.  `io` and `faults` (minor faults) are None if they are not known.  Of
    `major` and `queue` only a rise counts.
    """

    now: float
    cpu: float
    io: int | None
    faults: int | None
    major: int
    queue: float


class Activity(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the tree.

    Times are watched seconds; -1: never.  `idle_since`, `spin_since`: None if the tree is not idle, or does not spin;
    `still_since`: the same of both by turns, as of a loop that asks and sleeps.
    """

    points: tuple[Point, ...] = ()
    kind: str = UNKNOWN
    seen: float = -1.0  # when the last usable reading came
    idle_since: float | None = None
    spin_since: float | None = None
    still_since: float | None = None
    unread: float = -1.0  # when it last waited while the device that it uses could not be read
    awake: float = -1.0  # when a census or the frame last showed a thread that something could wake
    ticked: float = -1.0  # when a census last showed more threads with a timer than the runtime has by itself
    driven: float = -1.0  # when a census last showed a thread of a GPU's driver
    # What the frame shows; None: not known, or the thread does not stand still.
    wait: PythonWait | None = None
    # Since when a device is busy for it at an even power, and nothing else is.
    device_since: float | None = None
    power_range: tuple[float, float] = (0.0, 0.0)  # watts, since then
    # Since when it is busy for it while its memory and its power rest; `rested`: when a reading last showed that.
    rests_since: float | None = None
    rested: float = -1.0
    computed: float = -1.0  # when a reading last showed the run's own work on it
    idle_device_since: float | None = None  # since when its own device does nothing, and one thread works at most
    worked: bool = False  # a reading in a healthy step showed the device at work
    unseen: bool = False  # the newest such reading did not show the run's own part of that work
    # Share of the time in which the device worked then, and nothing shows for whom: a mean; `explained`: for others.
    unexplained: float | None = None
    explained: bool = False
    locked_since: float | None = None  # since when the frame shows a lock that no Python thread could release
    census: float = -1.0  # when the last census came
    # In healthy steps: number of sleeping and timed threads -> censuses that showed it.
    timers: dict[int, int] = {}
    own_timers: int = 0  # how many of them the runtime has by itself
    threads: int = 0  # threads of the tree to which these counts belong; 0: not known
    alive: int = 0  # threads of the tree at the last reading
    alive_before: int = 0  # the same before this gap
    members: int = 0  # processes of the tree; 0: not known
    # (threads, timers) of each healthy census since the tree has other than `threads` threads.
    after_change: tuple[tuple[int, int], ...] = ()
    level: float = 0.0  # cores, in-step
    crowding: float = 1.0  # (run + wait for a core) / run: how much the tree's threads wait for each other
    usual_crowding: float = 0.0  # the same inside healthy steps; a busy machine shows above it
    faulting: float = 0.0  # major page faults a second
    state: str | None = None
    stopped_since: float | None = None  # watched seconds of the last reading before it was stopped (SIGSTOP)
    remote: bool | None = None
    workers: int = 0  # children that died inside this gap
    device: Device | None = None
    device_seen: float = -1.0
    power: float = 0.0  # watts, in-step
    runs: Runs = Runs()  # longest of each class inside this gap


class UsageRates(msgspec.Struct, frozen=True):
    """The counters of Point per second, averaged over the readings; `seconds`: from the first reading to the last."""

    seconds: float
    cpu: float
    io: float | None
    faults: float | None
    major: float
    queue: float


def read_process(
    evidence: Activity, reading: Process, now: float, gap: float, *,
    stepping: bool, limits: DetectorLimits, wait: PythonWait | None = None,
) -> Activity:  # fmt: skip
    """Return the evidence after a reading of the tree at watched time `now`, `gap` seconds after the last progress.

    `stepping`: the training is in a healthy step, so that these rates are the normal ones.  `wait`: what the frame of
    its thread shows now.
    """
    evidence = _note_wait(_note_threads(evidence, reading, now), wait, now)
    if reading.cpu is None:
        return replace(evidence, kind=UNKNOWN, idle_since=None, spin_since=None, still_since=None)
    # macOS does not say what was read and written, but what of it reached the disk.
    io = reading.disk if reading.io is None else reading.io
    point = Point(now, reading.cpu, io, reading.minor_faults, reading.major_faults or 0, reading.run_queue or 0.0)
    earlier = evidence.points
    if earlier and now <= earlier[-1].now:
        points = (*earlier[:-1], point)
    else:  # those of the last `window` seconds, two at least
        kept = [old for old in earlier if now - old.now <= limits.window]
        points = (*(kept or earlier[-1:])[-_POINTS:], point)
    evidence = replace(evidence, points=points, seen=now)
    rates = _rates(points)
    if rates is None:
        return evidence
    if stepping and gap < limits.window:
        evidence = _learn(evidence, reading, rates)
    passed = now - points[-2].now
    # A thread that waits half of its runnable time for a core needs twice as long: (run + wait) / run is the factor by
    # which the tree is slowed, independent of the number of threads.
    slowed = 1.0 if rates.cpu < _LEAST_CPU else (rates.cpu + rates.queue) / rates.cpu
    crowding = evidence.crowding + (slowed - evidence.crowding) * min(1.0, passed / _CROWDING_SECONDS)
    evidence = replace(evidence, crowding=crowding, faulting=rates.major)
    evidence = _classify(evidence, rates, now, gap, limits)
    longest, held = evidence.runs, current(evidence, now - gap)
    runs = Runs(
        deadlock=max(longest.deadlock, held.deadlock),
        external=max(longest.external, held.external),
        spin=max(longest.spin, held.spin),
        work=longest.work + (passed if evidence.kind in (WORKING, SHARED) and gap > _WORK_FROM else 0.0),
    )
    return replace(evidence, runs=runs)


def read_device(
    evidence: Activity, reading: Device, now: float, gap: float, *, stepping: bool, limits: DetectorLimits
) -> Activity:
    """Return the evidence after a reading of the accelerator, `gap` seconds after the last progress."""
    power = _moving_mean(evidence.power, reading.power) if stepping and reading.power else evidence.power
    computed = now if reading.moved else evidence.computed
    evidence = replace(evidence, device=reading, device_seen=now, power=power, computed=computed)
    works = bool(reading.moved) or (reading.utilisation or 0.0) >= limits.idle_gpu
    if stepping and works:
        evidence = _note_work(evidence, reading)
    if _rests(evidence, reading, limits):  # though its power changes: other programs come and go
        rests = (
            evidence.rests_since if evidence.rests_since is not None else now - (gap if gap <= _LATE_DEVICE else 0.0)
        )
        is_idle = _device_activity(evidence, now, limits) == "idle"
        return replace(evidence, rests_since=rests, rested=evidence.rested if is_idle else now, power_range=(0.0, 0.0))
    evidence = replace(evidence, rests_since=None)
    others = bool(reading.others) and reading.power is not None  # it can be their work: then the power decides
    if (reading.memory_utilisation or 0.0) > limits.resting_memory and not others:
        return replace(evidence, device_since=None, power_range=(0.0, 0.0))  # it reads or writes: it computes
    if evidence.device_since is None or not reading.power:
        return evidence
    low, high = evidence.power_range
    low, high = min(low or reading.power, reading.power), max(high, reading.power)
    if high - low > _FLAT * high:
        return replace(evidence, device_since=None, power_range=(0.0, 0.0))
    return replace(evidence, power_range=(low, high))


def begin_gap(evidence: Activity) -> Activity:
    """Return the evidence at the beginning of a new gap: every run starts again."""
    evidence = replace(evidence, wait=None, locked_since=None, device_since=None, power_range=(0.0, 0.0))
    evidence = replace(evidence, rests_since=None, idle_device_since=None, still_since=None)
    evidence = replace(evidence, alive_before=evidence.alive)
    return replace(evidence, idle_since=None, spin_since=None, unread=-1.0, kind=UNKNOWN, runs=Runs(), workers=0)


def is_locked(evidence: Activity) -> bool:
    """Return whether the training waits for a lock of Python that nothing in Python could release."""
    return evidence.wait is not None and evidence.wait.locked


def forget_window(evidence: Activity) -> Activity:
    """Return the evidence without its readings, which are older than a pause of the supervisor."""
    return replace(begin_gap(evidence), points=(), alive_before=evidence.alive_before)


def current(evidence: Activity, began: float) -> Runs:
    """Return how long each class has held without a break, in a gap that began at watched time `began`."""
    idle, spin = evidence.idle_since, evidence.spin_since
    external = 0.0 if idle is None or evidence.kind == UNKNOWN else evidence.seen - max(idle, began)
    deadlock = 0.0
    if idle is not None and evidence.kind == DEADLOCK:
        since = deadlocked_from(idle, evidence.wait, evidence.locked_since)
        deadlock = evidence.seen - max(since, began, _last_awake(evidence))
    spinning = 0.0 if spin is None else evidence.seen - max(spin, began)
    place = device = rests = idle_device = 0.0
    if (wait := evidence.wait) is not None:
        stands = evidence.seen - max(wait.since, began)
        place = min(spinning, stands) if wait.in_place else 0.0
        # A call that can also compute says nothing if the card can be busy for other programs alone.
        for_card = wait.for_device or not _can_be_of_others(evidence)
        if evidence.device_since is not None and for_card and (wait.in_library or wait.in_call):
            device = min(stands, evidence.seen - evidence.device_since)
        # Some copies from a GPU hold the interpreter's lock (`torch.save`): then no frame shows the call.
        if evidence.rests_since is not None and for_card and (wait.in_library or wait.kind == HELD):
            rests = min(stands, evidence.seen - evidence.rests_since)
        if evidence.idle_device_since is not None and wait.in_library:
            idle_device = min(stands, evidence.seen - evidence.idle_device_since)
            if not wait.for_device:  # one that slept, and has just woken up, has not spun so long
                idle_device = min(idle_device, spinning)
    still = 0.0 if evidence.still_since is None else evidence.seen - max(evidence.still_since, began)
    runs = (deadlock, external, spinning, evidence.runs.work, place, device, rests, idle_device, still)
    return Runs(*(max(0.0, run) for run in runs))


def machine_slowdown(evidence: Activity, limits: DetectorLimits) -> float:
    """Return the factor by which other programs on the machine slow the tree; 1 if they do not.

    The threads of a healthy TensorFlow step wait for each other's cores, up to a crowding of 2.5, so only what exceeds
    the usual counts.
    """
    usual = max(limits.crowded, evidence.usual_crowding)
    return min(limits.most_health, max(1.0, evidence.crowding / usual))


def is_fresh(evidence: Activity, now: float, limits: DetectorLimits) -> bool:
    """Return whether the last usable reading of the tree is recent enough to be judged."""
    return evidence.seen >= 0 and now - evidence.seen <= limits.stale_device


def is_device_unreadable(evidence: Activity, now: float, limits: DetectorLimits) -> bool:
    """Return whether the run can use an accelerator that cannot be read: then an idle processor proves nothing."""
    return _device_activity(evidence, now, limits) == "unknown"


def is_device_idle(evidence: Activity, now: float, limits: DetectorLimits) -> bool:
    """Return whether this run's accelerator can be read and does no work: it is idle, or wedged."""
    device = evidence.device
    used = device is not None and bool(device.used_by_run)
    return used and _device_activity(evidence, now, limits) in ("idle", "wedged")


def waits_for_idle_device(evidence: Activity) -> str:
    """Return which of verdict.Thresholds holds for a wait for a device that does nothing.

    `device` if it certainly waits for that; `call` if it can also compute; `place` if another Python thread could end
    the wait.
    """
    wait = evidence.wait
    if wait is None or wait.wakers > 0:
        return "place"
    return "device" if wait.for_device else "call"


def is_settled(evidence: Activity) -> bool:
    """Return whether it is known what all threads do: it takes a few censuses after some have started or ended."""
    return not evidence.threads or evidence.alive == evidence.threads


def _note_threads(evidence: Activity, reading: Process, now: float) -> Activity:
    """Return the evidence after what a reading shows of the process' state, its children and its threads."""
    state, since = reading.state or evidence.state, evidence.stopped_since
    # It can have been stopped since the reading before.
    earliest = evidence.seen if evidence.seen >= 0.0 else now
    evidence = replace(
        evidence,
        state=state,
        stopped_since=(earliest if since is None else since) if state == "stopped" else None,
        remote=reading.remote if reading.remote is not None else evidence.remote,
        workers=evidence.workers + (reading.workers or 0),
        alive=reading.threads or evidence.alive,
        members=reading.members or evidence.members,
    )
    sites = reading.census
    if sites is None:
        return evidence
    awake = now if waits_outside(reading, _WAKERS_OF_LOCKS) else evidence.awake
    # Before a healthy step it is not known how many the runtime has: 0.
    ticked = now if count_timers(sites) > evidence.own_timers else evidence.ticked
    driven = now if sites.get("driver") else evidence.driven
    return replace(evidence, census=now, awake=awake, ticked=ticked, driven=driven)


def _rates(points: tuple[Point, ...]) -> UsageRates | None:
    """Return the rates between the first and the last reading, None if they are too close."""
    first, last = points[0], points[-1]
    seconds = last.now - first.now
    if seconds < _SHORTEST:
        return None
    # A counter that fell belonged to a thread or child that has ended, and gives no rate.
    return UsageRates(
        seconds, cpu=max(0.0, last.cpu - first.cpu) / seconds,
        io=None if first.io is None or last.io is None else max(0.0, last.io - first.io) / seconds,
        faults=(None if first.faults is None or last.faults is None else max(0, last.faults - first.faults) / seconds),
        major=max(0.0, last.major - first.major) / seconds, queue=max(0.0, last.queue - first.queue) / seconds,
    )  # fmt: skip


def _learn(evidence: Activity, reading: Process, rates: UsageRates) -> Activity:
    """Return the evidence after a reading in a healthy step: its usual level, crowding and number of timers."""
    evidence = replace(
        evidence,
        level=_moving_mean(evidence.level, rates.cpu),
        usual_crowding=_moving_mean(evidence.usual_crowding, evidence.crowding),
    )
    if reading.census is None:
        return evidence
    timers = count_timers(reading.census)
    if reading.threads is not None:
        evidence = _follow_threads(evidence, reading.threads, timers)
        if evidence.after_change:
            return evidence  # not counted until it is known what the new threads do
    weight = 1 if reading.census.get("run") else _SURE
    counts = {**evidence.timers, timers: evidence.timers.get(timers, 0) + weight}
    if sum(counts.values()) > _CENSUSES:  # halved, so that old censuses weigh less than new ones
        counts = {known: count // 2 for known, count in counts.items() if count > 1}
    return replace(evidence, timers=counts, own_timers=own_timers(counts))


def _follow_threads(evidence: Activity, threads: int, timers: int) -> Activity:
    """Count threads that start late and sleep by a timer (a progress bar's monitor) as the runtime's own.

    The counts move by the number of added timers, but by no more than the number of added threads: an old thread that
    has begun to sleep can be a source of data that waits.  They move down in the same way when such threads end.
    """
    known, own = evidence.threads or threads, evidence.own_timers
    if threads == known:
        return replace(evidence, threads=known, after_change=())
    before = evidence.after_change
    same_direction = bool(before) and (before[-1][0] > known) == (threads > known)
    censuses = (*(before if same_direction else ()), (threads, timers))
    if len(censuses) < _ENOUGH:
        return replace(evidence, after_change=censuses)
    shown = sorted(timers for _, timers in censuses)
    if threads > known:
        settled = min(alive for alive, _ in censuses)
        # The second smallest: in one of these censuses a timer's thread can have run.
        shift = min(settled - known, max(0, shown[1] - own))
    else:
        settled = max(alive for alive, _ in censuses)
        shift = -min(known - settled, max(0, own - shown[len(shown) // 2]))
    moved: dict[int, int] = {}
    for value, count in evidence.timers.items():
        moved[max(0, value + shift)] = moved.get(max(0, value + shift), 0) + count
    return replace(evidence, threads=settled, after_change=(), timers=moved, own_timers=own_timers(moved))


def _moving_mean(level: float, new: float) -> float:
    """Return the mean after a new value; `level`: 0 before the first."""
    return level + (new - level) * (_WEIGHT if level else 1.0)


def _classify(evidence: Activity, rates: UsageRates, now: float, gap: float, limits: DetectorLimits) -> Activity:
    """Return the evidence with the class of its readings, and since when that class holds."""
    gpu = _device_activity(evidence, now, limits)
    transfers = rates.io is not None and rates.io >= limits.idle_io
    quiet = rates.cpu < max(limits.idle_cpu, limits.idle_share * evidence.level) and not transfers
    # Work is file traffic, newly touched memory, or a GPU that computes for this run; a busy processor alone can be a
    # spin.  If page faults are not known, as on a Mac after 2^31 of them, a busy processor counts as work.
    touches_memory = rates.faults is None or rates.faults >= limits.productive_faults
    productive = not quiet and (transfers or touches_memory or rates.major > 0)
    seen_since = now - min(rates.seconds, gap)
    if productive or gpu != "idle":
        evidence = replace(evidence, still_since=None)
    elif evidence.still_since is None:
        evidence = replace(evidence, still_since=seen_since)
    if productive or gpu in ("idle", "unknown"):
        evidence = replace(evidence, device_since=None, power_range=(0.0, 0.0))
        if productive or gpu == "unknown" or now - evidence.rested > _TURNS:
            evidence = replace(evidence, rests_since=None)
    elif evidence.device_since is None:
        evidence = replace(evidence, device_since=seen_since)
    if productive or gpu != "idle" or rates.cpu >= limits.one_thread or not _has_device(evidence):
        evidence = replace(evidence, idle_device_since=None)
    elif evidence.idle_device_since is None:
        evidence = replace(evidence, idle_device_since=seen_since)
    if quiet and (gpu in ("idle", "unknown") or is_locked(evidence)):
        # The window was idle as a whole, so the idleness is as old as the window.
        since = evidence.idle_since
        if since is None:
            since = now - rates.seconds if now - rates.seconds > now - gap + _ONSET else now - gap
        if gpu == "idle":  # its readings come seldom before a gap: one that came late holds for the time before it
            since = max(since, evidence.unread - limits.stale_device)
        idle = replace(evidence, idle_since=since, spin_since=None)
        is_deadlock = _is_deadlock(idle, rates, now, limits)
        if is_deadlock and (gpu == "idle" or is_locked(idle)):  # no GPU runs Python
            return replace(idle, kind=DEADLOCK)
        if gpu == "idle":
            return replace(idle, kind=EXTERNAL)
        if gpu == "unknown":
            return replace(idle, kind=UNKNOWN, unread=now)
    if gpu == "unknown" and not productive and not (evidence.wait is not None and evidence.wait.kind == "place"):
        return replace(evidence, kind=UNKNOWN, idle_since=None, spin_since=None, unread=now)  # it can be a wait for it
    if productive or gpu in ("busy", "moving"):
        owned = productive or _is_shown_to_work(evidence)
        return replace(evidence, kind=WORKING if owned else SHARED, idle_since=None, spin_since=None)
    began = evidence.spin_since if evidence.spin_since is not None else seen_since
    return replace(evidence, kind=SPIN, idle_since=None, spin_since=began)


def _note_wait(evidence: Activity, wait: PythonWait | None, now: float) -> Activity:
    """Return the evidence with what the frame says for a deadlock, or against one."""
    if wait is not None and wait.locked:
        since = now if evidence.locked_since is None else evidence.locked_since
        return replace(evidence, wait=wait, locked_since=since)
    awake = now if wait is not None and wait.wakes else evidence.awake
    return replace(evidence, wait=wait, awake=awake, locked_since=None)


def _last_awake(evidence: Activity) -> float:
    """Return when a thread that something could wake was last seen.

    A thread of the GPU's driver is none if Python's own lock is waited for, also in a census that came before the
    record that shows the lock.

    Threads with a timer are no such threads if Python's own lock is waited for after the first healthy steps, and it is
    not known yet how many of them the runtime has: a locked training of JAX, whose runtime has one, was judged after
    120 s.  But they are if one of them can be new, begun by the script for what it now waits for.
    """
    is_early = evidence.usual_crowding > 0.0 and sum(evidence.timers.values()) < _KNOWN
    none_began = evidence.alive <= min(evidence.threads or evidence.alive, evidence.alive_before)
    awake = evidence.awake if is_locked(evidence) else max(evidence.awake, evidence.driven)
    if is_early and none_began and is_locked(evidence) and evidence.members == 1:
        return awake
    return max(awake, evidence.ticked)


def _is_deadlock(evidence: Activity, rates: UsageRates, now: float, limits: DetectorLimits) -> bool:
    """Return whether nothing could wake an idle tree (see PythonWait)."""
    if rates.io is None:
        return False  # something can read
    if evidence.census >= 0:  # a recent one, after this idleness began, in which nothing could wake a thread
        recent = evidence.census > (evidence.idle_since or 0.0) and evidence.census >= now - limits.stale_census
        reads = bool(evidence.remote) and evidence.wait is not None and evidence.wait.in_library
        return recent and _last_awake(evidence) < evidence.census and not reads
    return is_locked(evidence) and evidence.members == 1 and evidence.remote is not None


def _has_device(evidence: Activity) -> bool:
    """Return whether the device that is read is known to be the training's own."""
    device = evidence.device
    return device is not None and (bool(device.used_by_run) or (device.used_by_run is None and evidence.worked))


def _note_work(evidence: Activity, reading: Device) -> Activity:
    """Return the evidence after a device worked in a healthy step: one that trains on the processor can hold it too."""
    if reading.moved or reading.utilisation is None or reading.others_compute is None:
        return replace(evidence, worked=True, unseen=reading.moved is False, unexplained=None, explained=False)
    rest, before = reading.utilisation - reading.others_compute, evidence.unexplained
    rest = rest if before is None else before + (rest - before) * _WEIGHT_OF_REST
    is_ours = rest >= _UNEXPLAINED
    unseen = is_ours and reading.moved is False
    return replace(evidence, worked=is_ours, unseen=unseen, unexplained=rest, explained=not is_ours)


def _is_shown_to_work(evidence: Activity) -> bool:
    """Return whether it is known that a busy device works for the run."""
    device = evidence.device
    return device is not None and (bool(device.moved) or (bool(device.used_by_run) and device.others == 0))


def _can_be_of_others(evidence: Activity) -> bool:
    """Return whether the work that the device shows can be that of other programs: of late none was the run's own."""
    device = evidence.device
    computes = evidence.computed >= 0.0 and evidence.seen - evidence.computed <= _TURNS
    return device is not None and device.others != 0 and not computes


def _rests(evidence: Activity, reading: Device, limits: DetectorLimits) -> bool:
    """Return whether both its memory and its power are known to rest."""
    if reading.memory_utilisation is None or not reading.power:
        return False
    most = max(limits.wedged_power * evidence.power, limits.resting_power * (reading.power_limit or 0.0))
    return reading.memory_utilisation <= limits.resting_memory and reading.power <= most


def _device_activity(evidence: Activity, now: float, limits: DetectorLimits) -> str:
    """Return idle, busy, moving, wedged or unknown; a device that only other programs use is idle.

    Moving is busy with a power that is not known; wedged is busy, but far below the healthy power; unknown is a device
    that the run can use, and whose newest reading is old or shows neither rest nor work.
    """
    device = evidence.device
    if device is None or device.used_by_run is False:
        return "idle"
    moving = (
        False if device.moved is None and evidence.explained and device.others_compute is not None else device.moved
    )
    if device.utilisation is not None and (moving is None or (moving is False and evidence.unseen)):
        moving = device.utilisation >= limits.idle_gpu
    if moving is None or now - evidence.device_seen > limits.stale_device:
        return "unknown"
    if not moving:
        return "idle"
    if device.power is None or not evidence.power:
        return "moving"
    return "wedged" if device.power < limits.wedged_power * evidence.power else "busy"
