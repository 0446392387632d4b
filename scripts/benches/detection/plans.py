"""Fifteen kinds of nights: what a training of each kind is made of, drawn at random.

Rates are per hour, times in seconds.  The kinds are ours, not a sample of the field: their false-alarm rates
rank detectors, they do not predict a field rate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Rng = np.random.Generator


@dataclasses.dataclass(frozen=True)
class Plan:
    """One night's training."""

    batch: float  # median step
    epoch_steps: int
    table: str = "recorded"  # or the name of a made-up table
    boundary: float = 0.5  # between two epochs
    boundary_spread: float = 0.4  # of its logarithm
    boundary_idle: bool = False  # waits for something outside, instead of computing
    boundary_in_step: bool = False  # inside the first step of the epoch, instead of before it
    nap: float = 0.8  # all-idle part of a boundary
    checks: int = 0  # validation batches an epoch
    check: float = 0.1
    first_check: float = 5.0
    save_every: int = 0  # steps
    save: float = 2.0
    save_idle: bool = False  # an upload
    first: float = 10.0  # tracing and compiling
    first_idle: float = 0.0  # a download before the first batch
    excess: float = 5.0  # factor on the pauses of the table
    compiles: float = 0.0
    compile: float = 5.0
    hiccups: float = 0.0  # the source is late
    hiccup: float = 3.0
    throttles: float = 0.0  # three times slower for 5-30 min
    contentions: float = 0.0  # 2-10 times slower for 0.5-11 min
    regimes: float = 0.0  # the step becomes 0.25-8 times as long
    drift: float = 0.0  # total growth of the step over the night
    sleeps: float = 0.0  # the machine sleeps 10 s - 9 h
    sleep_seen: bool = True  # by clocks that count sleep
    operations: float = 0.0  # unlabelled work of the user after a batch
    operation: float = 60.0
    operation_idle: bool = False
    pauses: float = 0.0  # 1-15 s of memory reclaim
    unreadable_gpu: bool = False
    waits: str = "library"  # one of WAYS_OF_WAITING

    @property
    def remote(self) -> bool:
        """Whether the job talks to other hosts."""
        return self.hiccups > 0 or self.boundary_idle or self.first_idle > 0


def between(rng: Rng, low: float, high: float) -> float:
    """Return a number between two, uniform in its logarithm."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def chance(rng: Rng, share: float) -> bool:
    """Return true in `share` of the cases."""
    return bool(rng.random() < share)


# How a training waits for something outside, and the share of the nights that do so: what its frame shows then.
WAYS_OF_WAITING = {
    "library": 0.5,  # inside the training library, whose native threads read
    "itself": 0.2,  # its own thread reads, runs another program or sleeps
    "thread": 0.297,  # for a lock of Python, and another Python thread reads
    # For a lock of Python, and no Python thread is there: a native thread calls Python when it is done.
    "callback": 0.003,
}


def with_waiting(plan: Plan, rng: Rng) -> Plan:
    drawn = rng.choice(list(WAYS_OF_WAITING), p=list(WAYS_OF_WAITING.values()))
    return dataclasses.replace(plan, waits=str(drawn))


class Kind(NamedTuple):
    """A kind of night.  `weight`: its share of the simulated hours; `batch`, `epoch`: least and most seconds.

    `differs`: what is not as in a plain night, drawn after it.
    """

    name: str
    weight: float
    batch: tuple[float, float]
    epoch: tuple[float, float]
    differs: Callable[[Rng, Plan], dict[str, Any]] = lambda _rng, _plan: {}

    def draw(self, rng: Rng) -> Plan:
        """Return the plan of a night."""
        batch = between(rng, *self.batch)
        steps = max(5, int(between(rng, *self.epoch) / batch))
        plan = Plan(
            batch=batch, epoch_steps=steps, boundary=max(0.05, between(rng, 0.02, 1.5)),
            boundary_in_step=chance(rng, 0.5), checks=int(rng.choice([0, 20, 100])), check=0.4 * batch,
            first_check=between(rng, 0.5, 15), first=between(rng, 0.5, 60), excess=between(rng, 1, 20),
            save_every=steps if chance(rng, 0.6) else 0, save=between(rng, 0.05, 20), compile=between(rng, 0.5, 20),
            sleep_seen=chance(rng, 0.5),
        )  # fmt: skip
        return dataclasses.replace(plan, **self.differs(rng, plan))


KINDS = [
    Kind("fast, 1-10 ms", 0.15, (0.001, 0.01), (20, 600)),
    Kind("typical, 30-500 ms", 2, (0.03, 0.5), (60, 1800)),
    Kind("slow, 2-60 s", 4, (2, 60), (1200, 7200), lambda rng, _: {
        "checks": int(rng.choice([0, 10, 40])), "first": between(rng, 10, 200), "save": between(rng, 5, 120)}),
    Kind("heavy tails, buckets", 2, (0.05, 3), (120, 1800), lambda rng, _: {
        "table": str(rng.choice(["pareto", "buckets", "accumulated", "log-normal"]))}),
    Kind("drift x4, regimes x0.25-8", 2, (0.05, 3), (300, 1800), lambda rng, _: {
        "drift": 3.0, "regimes": 2.0, "compile": between(rng, 1, 30)}),
    Kind("shuffle fill, 100-1000 steps", 2, (0.01, 0.3), (120, 900), lambda rng, plan: {
        "boundary": plan.batch * between(rng, 100, 1000), "boundary_idle": chance(rng, 0.5)}),
    Kind("throttled x3, neighbours x2-10", 2, (0.05, 8), (300, 1800), lambda *_: {
        "throttles": 1.0, "contentions": 2.0}),
    Kind("remote data, hiccups <= 60 s", 2, (0.05, 2), (300, 1800), lambda rng, _: {
        "hiccups": 1.0, "boundary_idle": True, "boundary": between(rng, 0.5, 15), "first_idle": between(rng, 1, 60)}),
    Kind("machine sleeps", 1, (0.05, 2), (300, 1800), lambda *_: {"sleeps": 0.5}),
    Kind("unlabelled operations, 20-300 s", 2, (0.05, 2), (600, 3600), lambda rng, _: {
        "operations": 0.5, "operation": between(rng, 20, 240), "operation_idle": chance(rng, 0.3)}),
    Kind("recompiles, 5-60 s", 2, (0.05, 2), (600, 3600), lambda rng, _: {
        "compiles": 1.0, "compile": between(rng, 5, 60)}),
    Kind("memory reclaim, 1-15 s", 1, (0.05, 2), (600, 3600), lambda *_: {"pauses": 4.0}),
    Kind("GPU that cannot be read", 1, (0.2, 20), (600, 3600), lambda *_: {"unreadable_gpu": True}),
    Kind("heavy validation, checkpoints", 2, (0.05, 1), (300, 1200), lambda rng, plan: {
        "checks": 400, "check": plan.batch * between(rng, 0.4, 3), "save": between(rng, 1, 60),
        "save_every": max(5, plan.epoch_steps // 3), "save_idle": chance(rng, 0.4)}),
    Kind("everything at once", 2, (0.02, 8), (300, 3600), lambda rng, plan: {
        "throttles": 0.5, "contentions": 1.0, "hiccups": 0.5, "compiles": 0.5, "compile": between(rng, 2, 40),
        "regimes": 0.5, "operations": 0.3, "operation": between(rng, 20, 240), "operation_idle": chance(rng, 0.3),
        "pauses": 1.0, "sleeps": 0.2, "drift": 1.0, "boundary": between(rng, 0.2, 60),
        "boundary_idle": chance(rng, 0.5), "save": between(rng, 1, 60), "save_every": plan.epoch_steps,
        "save_idle": chance(rng, 0.4)}),
]  # fmt: skip
