"""The rules that others use, on one stream of gaps between training batches.

They know no phases and no evidence, as in their own projects.  A minute of short steps counts as one alarm at
most, in their favour.  Sources: nvidia-resiliency-ext (timeouts_calc: 5 x the longest seen, 45 min before,
polled every 5 s), PortOS (6 x the slowest, 90 s to 15 min), Akka's phi accrual (normal, phi 8, 1000 samples,
deviation >= 100 ms, 3 s of acceptable pause), Cassandra's (exponential, phi 8: 18.42 means).
"""

from __future__ import annotations

import collections
import math
from typing import NamedTuple

import numpy as np

WINDOW = 1000  # samples that phi accrual keeps


class Seen(NamedTuple):
    """`number` gaps: their mean and longest in seconds, and their mean square."""

    number: int
    mean: float
    square: float
    longest: float


class Rule:
    """A rule: how long a gap can be, in seconds, and how it learns.

    `counts_sleep`: its clock counts the sleep of a machine; None: depends on the system.
    """

    name: str
    counts_sleep: bool | None = None

    def threshold(self) -> float:
        """Return seconds after which it would fire now."""
        raise NotImplementedError

    def learn(self, seen: Seen) -> None:
        """Take the next gaps."""

    def settle(self) -> None:
        """An epoch ended."""


class Fixed(Rule):
    """A fixed timeout (PyTorch's collectives: 10 minutes)."""

    def __init__(self, seconds: float) -> None:
        self.name, self._seconds = f"fixed {seconds / 60:.0f} min", seconds

    def threshold(self) -> float:
        return self._seconds


class FiveTimesLongest(Rule):
    """nvidia-resiliency-ext: 5 x the longest gap; computed at the end of an epoch."""

    name = "nvidia-resiliency-ext, 5 x longest"

    def __init__(self) -> None:
        self._longest, self._threshold = 0.0, 2700.0

    def threshold(self) -> float:
        return self._threshold

    def learn(self, seen: Seen) -> None:
        self._longest = max(self._longest, seen.longest)

    def settle(self) -> None:
        if self._longest > 0:
            self._threshold = 5.0 * self._longest


class SixTimesSlowest(Rule):
    """PortOS: 6 x the slowest, at least 90 s, at most 15 min; its clock is the wall's."""

    name = "PortOS, 6 x slowest"
    counts_sleep = True

    def __init__(self) -> None:
        self._slowest = math.inf

    def threshold(self) -> float:
        return min(900.0, max(90.0, 6.0 * self._slowest))

    def learn(self, seen: Seen) -> None:
        self._slowest = seen.longest if self._slowest == math.inf else max(self._slowest, seen.longest)


class _Phi(Rule):
    """The window of phi accrual."""

    def __init__(self) -> None:
        self._parts: collections.deque[tuple[int, float, float]] = collections.deque()
        self._count, self._sum, self._squares = 0, 0.0, 0.0

    def learn(self, seen: Seen) -> None:
        part = (seen.number, seen.mean * seen.number, seen.square * seen.number)
        self._parts.append(part)
        self._shift(part, 1)
        while len(self._parts) > 1 and self._count - self._parts[0][0] >= WINDOW:
            self._shift(self._parts.popleft(), -1)

    def _shift(self, part: tuple[int, float, float], sign: int) -> None:
        self._count += sign * part[0]
        self._sum += sign * part[1]
        self._squares += sign * part[2]

    @property
    def _mean(self) -> float:
        return self._sum / self._count if self._count else math.inf


class Akka(_Phi):
    """Normal tail: phi 8 is 5.6 deviations beyond the mean and the acceptable pause."""

    name = "phi accrual, Akka"

    def threshold(self) -> float:
        if not self._count:
            return math.inf
        variance = max(0.0, self._squares / self._count - self._mean**2)
        return self._mean + 3.0 + 5.6 * max(0.1, math.sqrt(variance))


class Cassandra(_Phi):
    """Exponential tail: phi 8 is 8 ln 10 = 18.42 means.  It disregards a local pause."""

    name = "phi accrual, Cassandra"
    counts_sleep = False

    def threshold(self) -> float:
        return 18.42 * self._mean


def all_rules() -> list[Rule]:
    return [Fixed(600.0), FiveTimesLongest(), SixTimesSlowest(), Akka(), Cassandra()]


class Watch:
    """Runs the rules over one stream: gaps from one end of a training batch to the next."""

    def __init__(self, rules: list[Rule], *, sleep_seen: bool, rng: np.random.Generator) -> None:
        """Begin a night.  `sleep_seen`: clocks of unknown kind count the machine's sleep."""
        self.rules, self._sleep_seen, self._rng = rules, sleep_seen, rng
        self.alarms = dict.fromkeys((rule.name for rule in rules), 0)
        self.open, self._slept, self._started = 0.0, 0.0, False

    def short(self, seconds: np.typing.NDArray[np.float64]) -> None:
        first = self.open + float(seconds[0])
        self._gap(first)
        if len(seconds) > 1:
            rest = seconds[1:]
            longest = float(rest.max())
            for rule in self.rules:
                self.alarms[rule.name] += self._fires(rule, longest)
                rule.learn(Seen(len(rest), float(rest.mean()), float((rest * rest).mean()), longest))

    def long(self, seconds: float, slept: float, *, trains: bool) -> None:
        """Take one gap; it ends a batch only where it `trains`."""
        self.open, self._slept = self.open + seconds, self._slept + slept
        if trains:
            self._gap(self.open)

    def settle(self) -> None:
        for rule in self.rules:
            rule.settle()

    def _gap(self, seconds: float) -> None:
        for rule in self.rules if self._started else ():
            seen = seconds + (self._slept if self._counts_sleep(rule) else 0.0)
            self.alarms[rule.name] += self._fires(rule, seen)
            rule.learn(Seen(1, seen, seen * seen, seen))
        self.open, self._slept, self._started = 0.0, 0.0, True

    def _counts_sleep(self, rule: Rule) -> bool:
        return self._sleep_seen if rule.counts_sleep is None else rule.counts_sleep

    def _fires(self, rule: Rule, seconds: float) -> bool:
        over = seconds - rule.threshold()
        polled = 5.0 if isinstance(rule, FiveTimesLongest) else 0.0
        return bool(over > 0 and (over >= polled or self._rng.random() * polled < over))
