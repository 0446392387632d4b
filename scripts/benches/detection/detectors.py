"""Our rule on the gaps of a night: the core's own statistics and thresholds, without the events in between.

What the whole detector does with readings at 4 Hz comes down to this: a class of evidence convicts when its run
reaches its threshold, and silence as such when it reaches the one for working.  A test in
tests/core/detection/test_gap_rule.py plays the same gaps through the whole detector and holds the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from detection.nights import AWAKE, LIBRARY, LOCKED, Gap, Segment, Steps, length
from stallguard.core import learned
from stallguard.core.detection import activity
from stallguard.core.detection.verdict import Circumstances, Thresholds, thresholds
from stallguard.core.learned import Baseline, Runs
from stallguard.core.limits import DetectorLimits

Records = Sequence[tuple[float, int]]

RECORD = 1.0  # s: the probe's records come once a second
# Reaction beside the threshold: a reading every quarter second, and the onset seen up to a reading late.
REACTION = (0.0, 0.5)


class Ours:
    """The detector at the level of gaps.  `census`: the wait sites of threads can be read (Linux)."""

    def __init__(self, limits: DetectorLimits, *, census: bool, remote: bool, blind: bool) -> None:
        self.limits, self.census, self.remote, self.blind = limits, census, remote, blind
        self.rows: dict[str, Baseline] = {}
        # No floor is lower than that for a deadlock in a step, and suspicion begins at a share of it.
        self._least = limits.suspect_share * limits.patience * limits.rows.step.deadlock
        self.now, self.strikes = 0.0, 1.0
        self.alarms = self.suspicions = 0
        self.reasons: dict[str, int] = {}

    def see(self, segment: Segment, records: Records = ()) -> None:
        """Judge a segment that ended well, and learn from it.  `records`: of Steps, by `as_records`."""
        self.now += length(segment)
        if isinstance(segment, Steps):
            self._learn_steps(segment.row, records or as_records(segment.seconds))
        else:
            self._see_gap(segment)

    def bar(self, row: str, neighbours: float = 1.0) -> Thresholds:
        where = Circumstances(
            machine_slowdown=min(self.limits.most_health, max(1.0, neighbours / self.limits.crowded)),
            strikes=self.strikes,
            remote=self.remote,
            blind=self.blind,
        )
        return thresholds(row, self.rows.get(row, Baseline()), where, self.limits)

    def _see_gap(self, gap: Gap) -> None:
        runs = self._runs(gap)
        if gap.seconds > self._least:
            self._judge(gap, runs)
        base = self.rows.get(gap.row, Baseline())
        base = learned.add_gaps(base, gap.seconds, self.now, self.limits)
        self.rows[gap.row] = learned.add_runs(base, runs, gap.seconds, self.limits)

    def _runs(self, gap: Gap) -> Runs:
        """Return the runs as the detector sees them (core/detection/activity.py)."""
        if self.census:
            against = gap.frame == AWAKE or (gap.frame == LIBRARY and self.remote)
            return Runs(0.0 if against else gap.deadlock, gap.external, gap.spin, gap.work)
        external = max(gap.external, gap.deadlock)
        return Runs(external if gap.frame == LOCKED else 0.0, external, gap.spin, gap.work)

    def _judge(self, gap: Gap, runs: Runs) -> None:
        share = reached(runs, gap.seconds, self.bar(gap.row, gap.neighbours))
        worst = max(share, key=share.__getitem__)
        if share[worst] >= 1.0:
            self.alarms += 1
            reason = f"{gap.row} {worst}"
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            self.strikes = min(self.limits.most_strikes, 2.0 * self.strikes)
        elif share[worst] >= self.limits.suspect_share:
            self.suspicions += 1

    def _learn_steps(self, row: str, records: Records) -> None:
        base = self.rows.get(row, Baseline())
        for seconds, count in records:
            base = learned.add_gaps(base, seconds, self.now, self.limits, count)
        self.rows[row] = learned.add_runs(base, Runs(), 1.0, self.limits)


def reached(runs: Runs, seconds: float, bar: Thresholds) -> dict[str, float]:
    return {
        activity.DEADLOCK: runs.deadlock / bar.deadlock,
        activity.EXTERNAL: runs.external / bar.external,
        activity.SPIN: runs.spin / bar.spin,
        activity.WORKING: seconds / bar.working,
    }


def as_records(seconds: np.typing.NDArray[np.float64]) -> Records:
    """Return (seconds, count) as the detector would learn steps: each record's longest, the others at its mean."""
    per = max(1, int(RECORD / max(1e-6, float(seconds.mean()))))
    starts = np.arange(0, len(seconds), per)
    longest = np.maximum.reduceat(seconds, starts)
    counts = np.diff(np.append(starts, len(seconds)))
    rest = (np.add.reduceat(seconds, starts) - longest) / np.maximum(1, counts - 1)
    values = np.concatenate([longest, rest[counts > 1]])
    weights = np.concatenate([np.ones(len(longest), int), counts[counts > 1] - 1])
    return _bucketed(values, weights)


def _bucketed(values: np.typing.NDArray[np.float64], weights: np.typing.NDArray[np.int64]) -> Records:
    mantissa, exponent = np.frexp(values * 1000.0 + 1e-9)
    buckets = 2 * exponent + (mantissa >= math.sqrt(0.5))
    order = np.argsort(buckets, kind="stable")
    starts = np.flatnonzero(np.diff(buckets[order], prepend=-1 << 30))
    longest = np.maximum.reduceat(values[order], starts)
    counts = np.add.reduceat(weights[order], starts)
    return list(zip(longest.tolist(), counts.tolist(), strict=True))


LOOK = 0.5  # s: the probe looks at the frames so often, so the first look is late by as much
KINDS_OF_STALL = {
    # kind: (share of all stalls, class of its evidence with a census, whether a lock in the frame shows it)
    "deadlock": (0.25, "deadlock", True),
    "deadlock in the library": (0.20, "deadlock", False),
    "external wait": (0.20, "external", False),
    "deadlock + poller": (0.10, "deadlock", True),
    "spin": (0.15, "spin", False),
    "deadlock + busy thread": (0.10, "working", False),
}


def latency(kind: str, bar: Thresholds, elapsed: float, *, census: bool, remote: bool, reaction: float) -> float:
    """Return seconds from the onset of a stall to the verdict, `elapsed` seconds into its gap."""
    _, name, has_lock = KINDS_OF_STALL[kind]
    if name == "deadlock" and not census:
        name, reaction = ("deadlock", reaction + LOOK) if has_lock else ("external", reaction)
    if name == "deadlock" and remote and not has_lock:
        name = "external"
    own = float(getattr(bar, name)) - (elapsed if name == "working" else 0.0)
    return float(max(0.0, min(own, bar.working - elapsed)) + reaction)
