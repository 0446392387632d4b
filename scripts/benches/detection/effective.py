"""Effective training time of nights with four stalls each, by rule: what its stalls and its false alarms cost.

The categories and the share are those of a run's ledger (core/time_spent.py).  Each rule resumes from the same
checkpoints and starts as fast.  In the others' favour, theirs collect no evidence and end a process at once.  Sleep of
the machine is left out: no rule can change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import asdict

from detection import nights
from detection.detectors import KINDS_OF_STALL, REACTION, Ours, latency
from detection.nights import Gap
from detection.peers import FiveTimesLongest, Fixed, Watch
from detection.plans import Plan
from stallguard.config.table import CheckpointSettings
from stallguard.core import policy, shutdown
from stallguard.core.limits import DetectorLimits, PolicyLimits, StopLimits
from stallguard.core.time_spent import Spent, effective

STALLS = 4  # in the hours of a night in which the machine is awake
# Seconds between two checkpoints inside an epoch (checkpoint.every): those of the goal, and the default.  With
# `--checkpoint-every 0` a checkpoint of 0.3 s is made each 30 s, which costs 1 % of the time (checkpoint.cost).
OFTEN, DEFAULT = 30.0, CheckpointSettings().every
SHOWN = (Fixed(600.0).name, FiveTimesLongest.name)  # of the others' rules
# Assumed, in seconds: stacks and readings of an incident (10 s at most; it fits into the two minutes in which a stall
# that is not certain can end by itself); from the start of a process to its first fit (3.3 s of processor time for the
# import of TensorFlow 2.21 on Linux).  Then the night's own first batch follows.
EVIDENCE, IMPORT = 5.0, 8.0
# Between two attempts: each stall is the first trouble since the training was healthy.
BACKOFF = policy.pause(1, PolicyLimits())
# From SIGTERM to the end of the process: core/shutdown.py, and the whole grace if the process computes.
INERT, BUSY = shutdown.REACTION_WAIT, StopLimits().grace
IDLE = frozenset(kind for kind, (_, name, _) in KINDS_OF_STALL.items() if name in ("deadlock", "external"))


class Account(NamedTuple):
    """What one rule made of some nights."""

    spent: Spent = Spent()
    stalls: int = 0
    needless: int = 0  # restarts of healthy trainings

    def plus(self, other: Account) -> Account:
        mine, more = asdict(self.spent), asdict(other.spent)
        spent = Spent(**{name: mine[name] + more[name] for name in mine})
        return Account(spent, self.stalls + other.stalls, self.needless + other.needless)

    @property
    def share(self) -> float:
        return effective(self.spent) or 0.0


class FourStalls:
    """Lets four stalls begin in a night, at random moments, and counts what each rule loses."""

    def __init__(
        self, plan: Plan, limits: DetectorLimits, rng: np.random.Generator, seconds: float, every: float
    ) -> None:
        """Choose the moments and kinds.  `every`: seconds between two checkpoints inside an epoch."""
        self._limits, self._rng, self.every = limits, rng, every
        self._has_gpu = plan.unreadable_gpu
        self._start_up = IMPORT + plan.first + plan.first_idle + plan.batch
        shares = [share for share, *_ in KINDS_OF_STALL.values()]
        drawn = map(str, rng.choice(list(KINDS_OF_STALL), STALLS, p=shares))
        self._due = sorted(zip(rng.random(STALLS) * seconds, drawn, strict=True), reverse=True)
        self._now = self._saved = 0.0
        self._alarms: dict[str, int] = {}
        self._whole = 0  # alarms of all rules
        self.accounts: dict[str, Account] = {}

    def see(self, segment: nights.Segment, ours: Mapping[str, Ours], watch: Watch) -> None:
        """Charge the alarms so far, and the stalls that begin in `segment`, before the rules see it."""
        self.charge_alarms(ours, watch)
        took = nights.length(segment)
        while self._due and self._due[-1][0] < self._now + took:
            at, kind = self._due.pop()
            self._stall(segment, at, kind, ours, watch)
        self._now += took
        is_due = segment.trains and self._now - self._saved >= self.every
        self._saved = self._last_save(segment, self._now)
        if segment.row in ("EPOCH_BOUNDARY", "EPOCH_FIRST_STEP") or (is_due and isinstance(segment, Gap)):
            self._saved = self._now

    def charge_alarms(self, ours: Mapping[str, Ours], watch: Watch) -> None:
        """Charge each rule for the healthy trainings that it has ended since the last call."""
        if (whole := sum([one.alarms for one in ours.values()]) + sum(watch.alarms.values())) == self._whole:
            return  # most often
        self._whole = whole
        counts = {name: one.alarms for name, one in ours.items()}
        counts |= {name: count for name, count in watch.alarms.items() if name in SHOWN}
        for name, count in counts.items():
            for _ in range(count - self._alarms.get(name, 0)):
                self._restart(name, Account(needless=1), self._now - self._saved)
        self._alarms = counts

    def close(self, ours: Iterable[str]) -> dict[str, Account]:
        """Return the accounts of the whole night, of our rules by their names and of SHOWN."""
        whole = Account(Spent(training=self._now))
        return {name: self.accounts.get(name, Account()).plus(whole) for name in (*ours, *SHOWN)}

    def _last_save(self, segment: nights.Segment, at: float) -> float:
        """Return when the last checkpoint before `at` was made; the steps of a segment are short."""
        is_stepping = segment.trains and not isinstance(segment, Gap)
        return self._saved + ((at - self._saved) // self.every * self.every if is_stepping else 0.0)

    def _stall(self, segment: nights.Segment, at: float, kind: str, ours: Mapping[str, Ours], watch: Watch) -> None:
        elapsed = at - self._now
        if not isinstance(segment, Gap):  # inside one of the steps
            elapsed = self._rng.random() * float(segment.seconds.mean())
        reaction, redone = self._rng.uniform(*REACTION), max(0.0, at - elapsed - self._last_save(segment, at))
        for name, one in ours.items():
            bar = one.bar(segment.row, segment.neighbours)
            found = latency(kind, bar, elapsed, census=one.census, remote=one.remote, reaction=reaction)
            silent = elapsed + found + EVIDENCE
            if not self._is_certain(kind, one):
                silent = max(silent, self._limits.act_after * self._limits.patience)
            ending = INERT if kind in IDLE else BUSY
            paid = Spent(stalled=silent - EVIDENCE, collecting_evidence=EVIDENCE, ending=ending, backoff=BACKOFF)
            self._restart(name, Account(paid, stalls=1), redone)
        for rule in (one for one in watch.rules if one.name in SHOWN):
            paid = Spent(stalled=max(elapsed + watch.open, rule.threshold()))
            self._restart(rule.name, Account(paid, stalls=1), redone)

    def _is_certain(self, kind: str, one: Ours) -> bool:
        """Return whether a stall is acted upon at once (core/detection/verdict.py): no device can end the wait.

        A Mac's training uses its GPU; on Linux only the kind of night that says so, as in the recordings.
        """
        _, name, has_lock = KINDS_OF_STALL[kind]
        return has_lock or (name == "deadlock" and one.census and not one.remote and not self._has_gpu)

    def _restart(self, name: str, paid: Account, redone: float) -> None:
        onward = Account(Spent(restart=self._start_up, redone_batches=redone))
        self.accounts[name] = self.accounts.get(name, Account()).plus(paid).plus(onward)
