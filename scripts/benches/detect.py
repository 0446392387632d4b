"""`scripts/bench detect`: how fast stalls are found and how seldom nothing is called one, beside others' rules.

Plays recorded trainings through the detector: as they were, with an hour of sleep, with a starved supervisor, and
with stalls put in.  Then makes nights of eight hours out of their steps, stretched to batches of 1 ms to 60 s, with
everything that happens in a night, and counts false alarms.  Deterministic by --seed; --hours 500000 is the long
proof, without the others' rules (two hours of processor time, shared by all cores).
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from detection import effective, gpu_traces, real, simulation, slow, tables, traces
from detection.detectors import KINDS_OF_STALL
from detection.plans import WAYS_OF_WAITING
from detection.simulation import OURS, OURS_BLIND, Scores, World
from detection.traces import Trace
from harness.results import Goal, concluded, number, quantile, table, upper_bound
from stallguard.core.detection import detector
from stallguard.core.detection.verdict import DetectorState
from stallguard.core.events import Event, Heartbeat, Sampled
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Process

ROUNDS = 3000


class Cost(NamedTuple):
    """Microseconds for a record with progress, a reading while all is well, and one in a silence; bytes."""

    record: float
    healthy: float
    silent: float
    state: int

    @property
    def training(self) -> float:
        """Share of one core while training: a record and a reading a second."""
        return (self.record + self.healthy) / 1e6

    @property
    def silence(self) -> float:
        """Share of one core in a silence: four readings a second."""
        return 4 * self.silent / 1e6


def measured(events: list[Event], limits: DetectorLimits) -> Cost:
    """Measure at the end of a recorded training; the best of several rounds, as other programs run too."""
    detector_state = detector.start()
    for event, _, after in real.thinned(events, limits):
        if isinstance(event, Heartbeat) and event.phase == "finishing":
            break
        detector_state = after
    heartbeat = detector_state.heartbeat
    if heartbeat is None:
        raise ValueError("a recording without a record")
    now = detector_state.clock.at or 0.0
    calm = Process(state="sleeping", cpu=50.0, io=0, minor_faults=0, run_queue=1.0, census={"futex": 12, "sleep": 1})
    moved = replace(
        heartbeat, at=now + 1, progress_at=now + 1, changes=heartbeat.changes + 40, beats=heartbeat.beats + 20,
        fit_beats=heartbeat.fit_beats + 20, batch=heartbeat.batch + 20, step_s=heartbeat.step_s + 0.9, longest=0.1,
        longest_phase="step", phase="step",
    )  # fmt: skip
    silent = detector_state
    for tick in range(24):
        silent = detector.observe(silent, Sampled(at=now + tick / 4, reading=calm), limits)
    return Cost(
        record=_best_time(detector_state, moved, limits),
        healthy=_best_time(detector_state, Sampled(at=now + 0.5, reading=calm), limits),
        silent=_best_time(silent, Sampled(at=now + 6.25, reading=calm), limits),
        state=len(msgspec.msgpack.encode(detector_state)),
    )


def _best_time(detector_state: DetectorState, event: Event, limits: DetectorLimits) -> float:
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(ROUNDS):
            detector.observe(detector_state, event, limits)
        best = min(best, (time.perf_counter() - began) / ROUNDS)
    return best * 1e6


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


def effective_times(scores: Scores) -> str:
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


def effective_goal(scores: Scores, rule: str) -> Goal:
    """Return how little of the time is to be ineffective with one of our rules."""
    whole = _account(scores, rule, effective.OFTEN)
    # Two standard errors of the mean: a stall costs 200 s more or less, of two hours.
    error = 0.055 / math.sqrt(max(1, whole.stalls)) if whole.stalls < FEW_STALLS else 0.0
    name = f"ineffective share, four stalls a night, {rule}"
    return Goal(name, 1.0 - whole.share, INEFFECTIVE + error)


ROOT = Path(__file__).resolve().parents[2]
SMALL = ROOT / "tests" / "recordings" / "traces"
LONG = 20_000.0  # hours from which the others' rules are left out
PATIENCE = (0.25, 0.5, 1.0, 2.0, 4.0)  # settings of the curve
SHOWN = ("deadlock", "external wait", "spin", "deadlock + busy thread")
LIMITS = DetectorLimits()
PROCESSES = os.cpu_count() or 1
PLACES = 6  # random moments a recording
WORDS = {
    "library": "inside the library",
    "itself": "itself",
    "thread": "for a Python thread that reads",
    "callback": "for a native thread that calls Python",
}
ASSUMED = f"""
Assumptions: the kinds of nights and their shares are ours; step times are resampled from the recordings in blocks
of 256; 3 % of a remote source's hiccups look like a deadlock, they come once an hour and end within 60 s; a training
waits for something outside {
    ", ".join(f"{WORDS[way]} {share:.1%}" for way, share in WAYS_OF_WAITING.items())
}; it is known that
such a job talks to other hosts; how much a neighbour slows is seen with 20 % error; a minute of short steps counts as
one false alarm of the others' rules at most; stalls: {
    ", ".join(f"{kind} {share:.0%}" for kind, (share, *_) in KINDS_OF_STALL.items())
}.
"""


def place_of_recordings() -> Path:
    """Return the directory of the full recordings where they are, else of the small ones kept for the tests."""
    full = Path(os.environ.get("STALLGUARD_TRACES", ROOT.parent / "shared" / "recordings" / "traces"))
    return full if full.is_dir() else SMALL


# ---- recorded trainings ----------------------------------------------------------------------------------


def healthy(recordings: list[Trace], rng: np.random.Generator) -> list[Goal]:
    """Count suspicions and alarms in trainings in which nothing was wrong."""
    plain = asleep = starved = 0
    for trace in recordings:
        events = list(traces.events(trace))
        plain += len(real.decided(events, LIMITS))
        for at in _moments(trace, rng):
            announced = bool(rng.random() < 0.5)
            asleep += len(real.decided(real.asleep(events, at, 3600.0, announced=announced), LIMITS))
            starved += len(real.decided(real.starved(events, at, 8.0), LIMITS))
    seconds = sum(end - begin for begin, end in map(real.span, recordings))
    print(f"{len(recordings)} healthy recordings, {seconds:.0f} s of training: suspicions and alarms {plain};")
    print(f"with an hour of sleep put in {PLACES} times each {asleep}; with a supervisor starved for 8 s {starved}.")
    names = ("healthy recordings", "an hour of sleep", "a starved supervisor")
    return [
        Goal(f"verdicts, {name}", float(count), 0.0)
        for name, count in zip(names, (plain, asleep, starved), strict=True)
    ]


def _moments(trace: Trace, rng: np.random.Generator) -> Iterator[float]:
    began, ended = real.span(trace)
    return iter(began + float(share) * (ended - began) for share in rng.random(PLACES))


def real_stalls(recordings: list[Trace]) -> list[Goal]:
    """Return how soon each recorded stall was found."""
    rows, goals = [], []
    for trace in recordings:
        began = real.stall_began(trace)
        if began is None:
            continue
        held = trace.samples[-1]["t"] - began
        found = real.first_stall(real.decided(traces.events(trace), LIMITS))
        early = [v for v in real.decided(traces.events(trace), LIMITS) if v.at < began]
        cells = (f"{found.at - began:.1f} s", found.cause, found.row) if found else ("not yet", "-", "-")
        rows.append((tables.name_of(trace), *cells, f"{held:.0f} s"))
        goals.append(Goal(f"verdicts before the stall of {tables.name_of(trace)}", float(len(early)), 0.0))
    print(table(("real stall", "found after", "cause", "row", "held for"), rows))
    return goals


LOCK = "no census, a lock of Python"
CASES = {
    # name: (way, remote host, census, most seconds inside a known step)
    "deadlock": ("deadlock", False, True, 11.0),
    "deadlock, remote job": ("deadlock", True, True, 31.0),
    "external wait": ("external wait", False, True, 31.0),
    "external wait, remote job": ("external wait", True, True, 76.0),
    "no census (macOS)": ("deadlock", False, False, 31.0),
    LOCK: ("deadlock", False, False, 11.0),
    "spin": ("spin", False, True, 122.0),
    "deadlock + working thread": ("working", False, True, 601.0),
}


def planted(recordings: list[Trace], rng: np.random.Generator) -> list[Goal]:
    """Put stalls into healthy recordings at random moments; say how soon they are found."""
    rows, goals = [], []
    usable = [trace for trace in recordings if any("cz" in sample for sample in trace.samples[-4:])]
    for name, (*_, at_most) in CASES.items():
        inside, anywhere = _planted(usable, name, rng)
        missed = sum(1 for took in anywhere if took == np.inf)
        cells = (quantile(inside, 0.5), quantile(inside, 1.0), quantile(anywhere, 0.5))
        rows.append((name, str(len(inside)), *(f"{cell:.1f} s" for cell in cells), str(missed)))
        goals.append(Goal(f"{name} in a step, slowest", quantile(inside, 1.0), at_most))
    head = ("stall planted", "in steps", "median", "slowest", "anywhere, median", "not found in 20 min")
    print(table(head, rows))
    return goals


def _planted(recordings: list[Trace], name: str, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    inside, anywhere = [], []
    for trace in recordings:
        for at in _moments(trace, rng):
            took, row, known = _found_after(trace, at, name)
            anywhere.append(took)
            if row == "STEP" and known:
                inside.append(took)
    return inside, anywhere


def _found_after(trace: Trace, at: float, name: str) -> tuple[float, str, bool]:
    """Return (seconds until found, row, whether 32 steps were known)."""
    way, remote, census, _ = CASES[name]
    stuck = real.stalled(trace, at, real.WAYS[way], 1200.0)
    events = traces.events(stuck)
    events = real.remote(events) if remote else events
    events = events if census else real.without_census(events)
    events = real.locked(events, at) if name == LOCK else events
    found = real.first_stall(real.decided(events, LIMITS))
    beats = sum(1 for when, code, _ in stuck.marks if code == "e" and when <= at)
    if found is None:
        return np.inf, "", False
    return found.at - at, found.row, beats >= LIMITS.rows.step.enough + 8


# ---- simulated nights --------------------------------------------------------------------------------------


def nights(recordings: list[Trace], hours: float, seed: int) -> list[Goal]:
    made_up = {one.name: one for one in tables.made_up(np.random.default_rng(seed))}
    world = World(tables.recorded(recordings), made_up, LIMITS, peers=hours <= LONG, stalls=hours <= LONG)
    scores = simulation.simulate(world, hours, seed, processes=PROCESSES)
    print(ASSUMED)
    print(_by_rule(scores))
    print()
    print(_by_kind(scores))
    if world.peers:
        print(f"\n{effective_times(scores)}")
    print(f"\nwere remote hosts not seen: {_unseen(world, hours / 8, seed)}")
    return _night_goals(scores, peers=world.peers)


def _unseen(world: World, hours: float, seed: int) -> str:
    """Return what the assumption on remote hosts is worth."""
    scores = simulation.simulate(
        dataclasses.replace(world, peers=False, remote_seen=False), hours, seed, processes=PROCESSES
    )
    alarms, played, _ = _total(scores, OURS)
    return f"{number(alarms / played * 1000.0)} false alarms / 1000 h in {played:,.0f} h"


def _total(scores: Scores, rule: str) -> tuple[int, float, list[float]]:
    found = [kind[rule] for kind in scores.values() if rule in kind]
    latencies = [took for score in found for took in score.all_latencies()]
    return sum(score.alarms for score in found), sum(score.hours for score in found), latencies


def _by_rule(scores: Scores) -> str:
    rows = []
    for rule in next(iter(scores.values())):
        alarms, hours, latencies = _total(scores, rule)
        worst = max(kind[rule].alarms / kind[rule].hours * 1000.0 for kind in scores.values())
        rate = alarms / hours * 1000.0
        cells = (rate, upper_bound(alarms, hours), worst, quantile(latencies, 0.5), quantile(latencies, 0.99))
        rows.append((rule, *(number(cell) for cell in cells)))
    head = ("rule", "false alarms / 1000 h", "95 % bound", "worst kind", "stall found, median s", "p99 s")
    return f"{hours:,.0f} h simulated\n" + table(head, rows)


def _by_kind(scores: Scores) -> str:
    rows = []
    others = [rule for rule in next(iter(scores.values())) if rule not in (OURS, OURS_BLIND)]
    for kind, rules in scores.items():
        ours = rules[OURS]
        latencies = [number(quantile(ours.latencies.get(stall, []), 0.5)) for stall in KINDS_OF_STALL]
        everything = ours.all_latencies()
        rates = [number(rules[rule].alarms / rules[rule].hours * 1000.0) for rule in (OURS, OURS_BLIND, *others)]
        rows.append((kind, f"{ours.hours:.0f}", *rates, *latencies, number(quantile(everything, 0.99))))
    short = [
        rule.split(",")[-1].strip() if rule.startswith(("phi", "stall")) else rule.split(",")[0] for rule in others
    ]
    head = ("kind of night: false alarms / 1000 h of", "h", "ours", "no census", *short)
    return table((*head, *(f"{stall}, s" for stall in KINDS_OF_STALL), "p99 s"), rows)


def _night_goals(scores: Scores, *, peers: bool) -> list[Goal]:
    goals = []
    for rule, rate in ((OURS, 0.05), (OURS_BLIND, 0.05)):
        alarms, played, latencies = _total(scores, rule)
        # A short run cannot show so small a rate: there, more than two alarms would speak against it.
        goals.append(Goal(f"false alarms, {rule}", float(alarms), max(2.0, rate * played / 1000.0)))
        if peers:
            goals.append(Goal(f"median latency, {rule}, s", quantile(latencies, 0.5), 31.0))
            goals.append(effective_goal(scores, rule))
    return goals


# ---- trainings on a GPU ------------------------------------------------------------------------------------

EVERY = 6.0  # hours of a training on a GPU in which one of the healthy episodes is assumed
SICK_EACH = 12  # episodes of each sick kind
IN_TIME = {"noticed": 30.0, "judged": 60.0, "acted": 120.0}  # seconds


def on_gpus(hours: float, seed: int) -> list[Goal]:
    """Count alarms of waits for a GPU that end by themselves; return how soon one that does not is found."""
    found = gpu_traces.played(round(hours / EVERY), SICK_EACH, seed, PROCESSES)
    rows = []
    for kind in (*gpu_traces.HEALTHY, *gpu_traces.SICK):
        of_kind = [one for one in found if one.kind == kind]
        alarms = sum(one.judged < np.inf for one in of_kind)
        slowest = [f"{max(getattr(one, name) for one in of_kind):.1f}" for name in IN_TIME]
        rows.append((kind, str(len(of_kind)), str(alarms), *(slowest if kind in gpu_traces.SICK else ("-",) * 3)))
    print(f"trainings on a GPU, a healthy wait each {EVERY:g} h assumed: {hours:,.0f} h")
    head = ("a wait for the GPU", "episodes", "called a stall", *(f"{name} after, slowest, s" for name in IN_TIME))
    print(table(head, rows))
    healthy = [one for one in found if one.kind in gpu_traces.HEALTHY]
    goals = [Goal("healthy waits for a GPU called a stall", float(sum(one.judged < np.inf for one in healthy)), 0.0)]
    sick = [one for one in found if one.kind in gpu_traces.SICK]
    return goals + [
        Goal(f"a GPU that never answers, {name} after, slowest, s", max(getattr(one, name) for one in sick), most)
        for name, most in IN_TIME.items()
    ]


# ---- patience --------------------------------------------------------------------------------------------


def curve(recordings: list[Trace], hours: float, seed: int) -> list[Goal]:
    """Return what patience costs and what it buys: false alarms against the time until a stall is found."""
    made_up = {one.name: one for one in tables.made_up(np.random.default_rng(seed))}
    world = World(tables.recorded(recordings), made_up, LIMITS, peers=False)
    rows = []
    for patience in PATIENCE:
        limits = msgspec.structs.replace(LIMITS, patience=patience)
        scores = simulation.simulate(dataclasses.replace(world, limits=limits), hours, seed, processes=PROCESSES)
        cells = [number(cell) for rule in (OURS, OURS_BLIND) for cell in _false_alarms(scores, rule)]
        rows.append((f"--patience {patience:g}", *cells, *(_found(scores, OURS, kind) for kind in SHOWN)))
    head = ("", "false alarms / 1000 h", "95 % bound", "no census", "95 % bound", *(f"{kind}, s" for kind in SHOWN))
    print(f"{hours:,.0f} h for each patience\n{table(head, rows)}")
    return []


def _false_alarms(scores: Scores, rule: str) -> tuple[float, float]:
    alarms, hours, _ = _total(scores, rule)
    return alarms / hours * 1000.0, upper_bound(alarms, hours)


def _found(scores: Scores, rule: str, stall: str) -> str:
    took = [seconds for kind in scores.values() for seconds in kind[rule].latencies.get(stall, [])]
    return number(quantile(took, 0.5))


# ---- slow, and what it costs --------------------------------------------------------------------------------


def slowdowns(recordings: list[Trace], runs: int, seed: int) -> list[Goal]:
    """Return how soon slowdowns are reported."""
    made_up = {one.name: one for one in tables.made_up(np.random.default_rng(seed))}
    found = slow.measure(tables.recorded(recordings), made_up, LIMITS, runs, seed)
    rate = found.alarms / found.hours * 1000.0
    rows, goals = [], [Goal("false slowdowns / 1000 h", rate, 5.0)]
    for factor, latencies in found.announced.items():
        missed = sum(1 for took in latencies if took == np.inf) / len(latencies)
        seen = [took for took in latencies if took != np.inf]
        rows.append((f"x{factor:g}", f"{quantile(seen, 0.5):.0f} s", f"{quantile(seen, 0.95):.0f} s", f"{missed:.0%}"))
        if factor == 3.0:
            goals += [
                Goal("slowdown x3, median s", quantile(seen, 0.5), 70.0),
                Goal("slowdown x3, missed", missed, 0.05),
            ]
    print(f"false slowdowns {rate:.1f} / 1000 h in {found.hours:.0f} h of steady training")
    print(table(("slowdown", "reported after, median", "p95", "missed in 10 min"), rows))
    return goals


def costs(recordings: list[Trace]) -> list[Goal]:
    named = {tables.name_of(trace): trace for trace in recordings}
    taken = measured(list(traces.events(named.get("lstm_small", recordings[0]))), LIMITS)
    print(
        f"a record {taken.record:.0f} us (of all batches of a second), a reading {taken.healthy:.0f} us, "
        f"one in a silence {taken.silent:.0f} us; {taken.training:.4%} of a core while training, "
        f"{taken.silence:.4%} in a silence; "
        f"state {taken.state / 1000:.1f} kB"
    )
    return [
        Goal("core share while training", taken.training, 0.001),
        Goal("core share in a silence", taken.silence, 0.001),
        Goal("state, kB", taken.state / 1000, 8.0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=6000.0, help="simulated hours (default: %(default)g)")
    parser.add_argument("--curve", type=float, default=1500.0, help="hours for each patience (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default: %(default)s)")
    parser.add_argument("--traces", type=Path, default=place_of_recordings(), help="directory of recordings")
    asked = parser.parse_args()
    began = time.perf_counter()
    recordings = tables.load(asked.traces)
    rng = np.random.default_rng(asked.seed)
    well = [trace for trace in recordings if not tables.is_stall(trace)]
    print(f"seed {asked.seed}, {len(recordings)} recordings in {asked.traces}\n")
    goals = healthy(well, rng)
    parts: list[Callable[[], list[Goal]]] = [
        lambda: real_stalls(recordings),
        lambda: planted(well, rng),
        lambda: nights(well, asked.hours, asked.seed),
        lambda: on_gpus(asked.hours, asked.seed),
        lambda: curve(well, min(asked.hours, asked.curve), asked.seed),
        lambda: slowdowns(well, 10, asked.seed),
        lambda: costs(well),
    ]
    for part in parts:
        print(flush=True)
        goals += part()
    return concluded(goals, f"\ntook {time.perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    sys.exit(main())
