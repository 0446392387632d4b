"""Many nights, all rules: false alarms and detection latencies, kind by kind."""

from __future__ import annotations

import dataclasses
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from detection import nights
from detection.detectors import KINDS_OF_STALL, REACTION, Ours, as_records, latency
from detection.effective import DEFAULT, OFTEN, Account, FourStalls
from detection.nights import Gap, Steps
from detection.peers import Watch, all_rules
from detection.plans import KINDS, Kind, Plan, with_waiting
from detection.tables import Table
from stallguard.core.limits import DetectorLimits

HOURS = 8.0  # a night
NIGHTS_A_MESSAGE = 5000
STALLS = 16  # injected a night, one at a time
OURS, OURS_BLIND = "stallguard, Linux", "stallguard, no census (macOS)"


@dataclasses.dataclass
class Score:
    """What one rule did in one kind of night."""

    hours: float = 0.0
    alarms: int = 0
    suspicions: int = 0
    latencies: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    # Of the same nights with four stalls each, by the seconds between two checkpoints.
    accounts: dict[float, Account] = dataclasses.field(default_factory=dict)
    reasons: dict[str, int] = dataclasses.field(default_factory=dict)

    def include(self, other: Score) -> None:
        self.hours += other.hours
        self.alarms += other.alarms
        self.suspicions += other.suspicions
        for kind, latencies in other.latencies.items():
            self.latencies.setdefault(kind, []).extend(latencies)
        for every, account in other.accounts.items():
            self.accounts[every] = self.accounts.get(every, Account()).plus(account)
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count

    def add(self, kind: str, seconds: float) -> None:
        self.latencies.setdefault(kind, []).append(seconds)

    def all_latencies(self) -> list[float]:
        return [seconds for found in self.latencies.values() for seconds in found]


Scores = dict[str, dict[str, Score]]  # kind of night -> rule -> score


@dataclasses.dataclass(frozen=True)
class World:
    """What nights are made of and judged by.  `peers`: the other rules too; `stalls`: put in stalls."""

    recorded: list[Table]
    made_up: dict[str, Table]
    limits: DetectorLimits
    peers: bool = True
    stalls: bool = True
    remote_seen: bool = True  # the sensor knows that the job talks to other hosts


def simulate(world: World, hours: float, seed: int, kinds: Sequence[Kind] = KINDS, processes: int = 1) -> Scores:
    """Return the scores of about `hours` simulated hours, the same for any number of `processes`.

    Prints to stderr how far a long simulation is.
    """
    total = sum(kind.weight for kind in kinds)
    drawn = [
        (seed, number, index)
        for number, kind in enumerate(kinds)
        for index in range(max(1, round(hours * kind.weight / total / HOURS)))
    ]
    scores: Scores = {kind.name: {} for kind in kinds}
    began = time.monotonic()
    # Forked processes have the world already: the tables need not be sent to them.
    with multiprocessing.get_context("fork").Pool(processes, _live_in, (world, kinds)) as pool:
        for done, (name, night) in enumerate(pool.imap(_play, drawn, chunksize=8), start=1):
            for rule, score in night.items():
                scores[name].setdefault(rule, Score()).include(score)
            if done % NIGHTS_A_MESSAGE == 0:
                print(f"{done:,} of {len(drawn):,} nights, {time.monotonic() - began:.0f} s", file=sys.stderr)
    return scores


_world: World  # of a process of the pool
_kinds: Sequence[Kind]


def _live_in(world: World, kinds: Sequence[Kind]) -> None:
    global _world, _kinds
    _world, _kinds = world, kinds


def _play(drawn: tuple[int, int, int]) -> tuple[str, dict[str, Score]]:
    seed, number, index = drawn
    kind = _kinds[number]
    rng = np.random.default_rng([seed, number, index])
    # Of its own, so that what frames show is added to the same nights.
    plan = with_waiting(kind.draw(rng), np.random.default_rng([seed, number, index, 1]))
    four_stalls = [
        FourStalls(plan, _world.limits, np.random.default_rng([seed, number, index, 2]), HOURS * 3600.0, every)
        for every in ((OFTEN, DEFAULT) if _world.peers else ())
    ]  # of their own, for the same reason
    scores: dict[str, Score] = {}
    _night(_world, plan, rng, four_stalls, scores)
    return kind.name, scores


def _night(
    world: World, plan: Plan, rng: np.random.Generator, four_stalls: Sequence[FourStalls], scores: dict[str, Score]
) -> None:
    table = world.made_up.get(plan.table) or world.recorded[rng.integers(len(world.recorded))]
    remote = plan.remote and world.remote_seen
    ours = {
        name: Ours(world.limits, census=census, remote=remote, blind=plan.unreadable_gpu)
        for name, census in ((OURS, True), (OURS_BLIND, False))
    }
    watch = Watch(all_rules() if world.peers else [], sleep_seen=plan.sleep_seen, rng=rng)
    stalls = Stalls(rng, STALLS if world.stalls else 0)
    for segment in nights.play(plan, table, rng, HOURS):
        stalls.strike(segment, ours, watch, scores)
        for one in four_stalls:
            one.see(segment, ours, watch)
        records = as_records(segment.seconds) if isinstance(segment, Steps) else ()
        for detector_state in ours.values():
            detector_state.see(segment, records)
        if world.peers:
            _feed_peers(segment, watch)
    _note(ours, watch, scores)
    for one in four_stalls:
        one.charge_alarms(ours, watch)
        for name, account in one.close(ours).items():
            scores[name].accounts[one.every] = account


def _feed_peers(segment: nights.Segment, watch: Watch) -> None:
    if isinstance(segment, Steps) and segment.trains:
        watch.short(segment.seconds)
    elif isinstance(segment, Steps):
        watch.long(float(segment.seconds.sum()), 0.0, trains=False)
    else:
        watch.long(segment.seconds, segment.slept, trains=segment.trains)
        if segment.row in ("EPOCH_BOUNDARY", "EPOCH_FIRST_STEP"):
            watch.settle()


def _note(ours: dict[str, Ours], watch: Watch, scores: dict[str, Score]) -> None:
    for name, detector_state in ours.items():
        score = scores.setdefault(name, Score())
        score.hours, score.alarms = HOURS, detector_state.alarms
        score.suspicions, score.reasons = detector_state.suspicions, dict(detector_state.reasons)
    for name, alarms in watch.alarms.items():
        score = scores.setdefault(name, Score())
        score.hours, score.alarms = HOURS, alarms


class Stalls:
    """Asks every rule at random moments: if the training stopped now, when would you say so?"""

    def __init__(self, rng: np.random.Generator, count: int) -> None:
        self._rng, self._now = rng, 0.0
        kinds = list(KINDS_OF_STALL)
        shares = [share for share, *_ in KINDS_OF_STALL.values()]
        drawn = rng.choice(kinds, count, p=shares)
        self._due = sorted(zip(rng.random(count) * HOURS * 3600.0, map(str, drawn), strict=True), reverse=True)

    def strike(self, segment: nights.Segment, ours: dict[str, Ours], watch: Watch, scores: dict[str, Score]) -> None:
        """Let the stalls that are due begin inside this segment."""
        took = nights.length(segment)
        for at, kind in self._in_the_next(took):
            elapsed = at - self._now if isinstance(segment, Gap) else self._rng.random() * float(segment.seconds.mean())
            reaction = self._rng.uniform(*REACTION)
            neighbours = segment.neighbours
            for name, detector_state in ours.items():
                bar = detector_state.bar(segment.row, neighbours)
                seconds = latency(
                    kind, bar, elapsed, census=detector_state.census, remote=detector_state.remote, reaction=reaction
                )  # fmt: skip
                scores.setdefault(name, Score()).add(kind, seconds)
            for rule in watch.rules:
                silent = watch.open + elapsed
                scores.setdefault(rule.name, Score()).add(kind, max(0.0, rule.threshold() - silent))
        self._now += took

    def _in_the_next(self, seconds: float) -> Iterator[tuple[float, str]]:
        while self._due and self._due[-1][0] < self._now + seconds:
            yield self._due.pop()
