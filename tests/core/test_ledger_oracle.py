"""Each category of the ledger has the seconds that the plan of a run gives it, and not only their sum.

A plan is a list of things that happen, with durations.  The plan itself says what each of them costs; the ledger gets
the records, events and actions that a run with this plan has.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from stallguard.core import ledger
from stallguard.core.actions import Announce, Collect, Conclude, Signal
from stallguard.core.events import ClockGap, Collected, Exited, Heartbeat, Launched, ProbeConnected
from stallguard.core.time_spent import EFFECTIVE, effective, total
from tests import examples

USUAL = 0.1  # seconds between two batches
EPOCH = 1_000_000  # batches


class Plan:
    """Plays a run, and adds up what it costs by itself."""

    def __init__(self) -> None:
        self.known, self.now, self.attempt = ledger.Ledger(since=0.0), 0.0, 0
        self.expected: Counter[str] = Counter()
        self.batch = self.goal = 0  # of this attempt; batches that an earlier attempt trained
        self.over = False
        self.start(10.0)

    def tell(self, what: object) -> None:
        self.known = ledger.after(self.known, self.now, what)

    def passes(self, seconds: float, category: str) -> None:
        self.now += seconds
        self.expected[category] += seconds

    def record(self, **fields: Any) -> None:
        usual = {"phase": "step", "progress_at": self.now, "beat_at": self.now, "longest": USUAL}
        self.tell(Heartbeat(
            at=self.now, attempt=self.attempt, pid=self.attempt, beats=self.batch, fits=1, epoch=0, batch=self.batch,
            batches=EPOCH, **(usual | fields),
        ))  # fmt: skip

    # ---- what can happen

    def start(self, seconds: float, resumed: int = 0) -> None:
        self.attempt, self.batch = self.attempt + 1, resumed
        self.tell(Launched(at=self.now, attempt=self.attempt, pid=self.attempt))
        self.tell(ProbeConnected(at=self.now, attempt=self.attempt, pid=self.attempt, place="p"))
        self.passes(seconds, "start_up" if self.attempt == 1 else "restart")
        self.batch += 1
        self.record()

    def train(self, seconds: float) -> None:
        for _ in range(round(seconds / USUAL)):
            again = self.batch < self.goal
            self.batch += 1
            self.passes(USUAL, "redone_batches" if again else "training")
            self.record()

    def phase(self, name: str, category: str, seconds: float) -> None:
        began = self.now
        self.passes(seconds, "redone_batches" if self.batch < self.goal else category)
        self.record(phase=name, phase_at=began, beat_at=began)
        self.record(phase="step", phase_at=self.now, beat_at=began)

    def suspect(self, seconds: float) -> None:
        self.passes(5.0, "redone_batches" if self.batch < self.goal else "training")
        self.tell(Announce("training.suspected", {"pid": str(self.attempt)}))
        self.passes(seconds, "suspected")
        self.tell(Announce("training.cleared", {"pid": str(self.attempt)}))
        self.record()

    def stall(self, seconds: float) -> None:
        self.passes(seconds, "stalled")
        self.tell(Announce("training.stalled", {"pid": str(self.attempt)}))
        self.tell(Collect(1, self.attempt))
        self.passes(2.0, "collecting_evidence")
        self.tell(Collected(at=self.now, incident=1, seconds=2.0))
        self.passes(3.0, "stalled")
        self.tell(Signal(self.attempt, "TERM"))
        self.passes(4.0, "ending")
        self.next(code=-15)

    def crash(self, silence: float) -> None:
        """A crash: the batch that it leaves unfinished is lost, and a longer silence was no training."""
        long = silence > ledger.PAUSE
        self.passes(USUAL if long else silence, "ending")
        self.passes(silence - USUAL if long else 0.0, "suspected")
        self.next(code=-11)

    def next(self, code: int) -> None:
        self.tell(Exited(at=self.now, attempt=self.attempt, code=code))
        if code == -11:
            self.tell(Announce("attempt.restarting", {}))
        self.passes(1.0, "backoff")
        self.goal = max(self.goal, self.batch)
        self.start(6.0, resumed=self.batch // 2)

    def nap(self, seconds: float) -> None:
        self.expected["machine_asleep"] += seconds
        self.tell(ClockGap(at=self.now, seconds=seconds))

    def interrupt(self, silence: float) -> None:
        """The user ends it, by Ctrl-C, after a silence that nothing judged."""
        long, category = silence > ledger.PAUSE, "redone_batches" if self.batch < self.goal else "training"
        self.passes(USUAL if long else silence, category)
        self.passes(silence - USUAL if long else 0.0, "suspected")
        self.tell(Signal(self.attempt, "INT"))
        self.passes(1.5, "ending")
        self.end(code=-2)

    def end(self, code: int = 0) -> None:
        self.tell(Exited(at=self.now, attempt=self.attempt, code=code))
        self.tell(Conclude(code))
        self.over = True


HAPPENINGS = {
    "train": Plan.train, "suspect": Plan.suspect, "stall": Plan.stall, "crash": Plan.crash, "nap": Plan.nap,
    "validation": lambda plan, seconds: plan.phase("validation", "validation", seconds),
    "checkpoint": lambda plan, seconds: plan.phase("checkpoint", "checkpoint", seconds),
    "script": lambda plan, seconds: plan.phase("idle", "script", seconds),
}  # fmt: skip
lengths = st.floats(1.0, 900.0).map(lambda seconds: round(seconds, 1))


@pytest.mark.costly
@settings(max_examples=examples.of(60, fast=10), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(HAPPENINGS)), lengths), max_size=7),
    st.sampled_from([Plan.end, lambda plan: plan.interrupt(5.0), lambda plan: plan.interrupt(600.0)]),
)
def test_each_category_has_the_seconds_of_the_plan(happenings, end):
    plan = Plan()
    for name, seconds in happenings:
        plan.train(2.0)
        HAPPENINGS[name](plan, seconds)
    plan.train(2.0)
    end(plan)

    spent = ledger.spent(plan.known, plan.now + 99.0)
    assert {name: took for name, took in asdict(spent).items() if took > 1e-6} == pytest.approx(
        {name: took for name, took in plan.expected.items() if took > 1e-6}, abs=0.3
    )
    kept = sum(plan.expected[name] for name in EFFECTIVE)
    assert effective(spent) == pytest.approx(kept / total(spent), abs=0.01)


def test_ten_silent_minutes_before_ctrl_c_are_not_effective():
    plan = Plan()
    plan.train(30.0)
    plan.interrupt(600.0)
    spent = ledger.spent(plan.known, plan.now)

    assert spent.suspected == pytest.approx(600.0 - USUAL)
    assert effective(spent) == pytest.approx(30.1 / 641.5, abs=0.001)


def test_a_start_is_not_effective():
    plan = Plan()
    plan.train(20.0)
    plan.end()

    assert effective(ledger.spent(plan.known, plan.now)) == pytest.approx(20.0 / 30.0)
