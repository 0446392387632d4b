"""The bench of the detector counts right, repeats itself, and knows the others' rules."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from detection import gpu_traces, nights, tables
from detection.effective import DEFAULT, IMPORT, OFTEN, FourStalls
from detection.peers import Akka, Cassandra, FiveTimesLongest, Fixed, Seen, SixTimesSlowest
from detection.plans import KINDS, Plan
from detection.simulation import OURS, World, simulate
from harness.results import Goal, upper_bound, verdict

from stallguard.core.limits import DetectorLimits

BENCHES = Path(__file__).parents[1] / "scripts" / "benches"
RECORDINGS = Path(__file__).parent / "recordings" / "traces"


@pytest.mark.parametrize(("count", "bound"), [(0, 2.996), (1, 4.744), (10, 16.96), (100, 118.1), (500, 538.0)])
def test_the_upper_bound_is_that_of_a_poisson_law(count, bound):
    assert upper_bound(count, 1000.0) == pytest.approx(bound, rel=0.01)


def world(**more):
    recorded = tables.recorded(tables.load(RECORDINGS))
    made_up = {one.name: one for one in tables.made_up(np.random.default_rng(0))}
    return World(recorded, made_up, DetectorLimits(), **more)


@pytest.mark.costly
def test_the_same_seed_gives_the_same_nights():
    first, again, other = (simulate(world(peers=False), 8.0, seed, KINDS[2:5]) for seed in (5, 5, 6))

    def seen(scores):
        return [
            (kind, score.alarms, score.suspicions, score.all_latencies())
            for kind, rules in scores.items()
            for score in [rules[OURS]]
        ]

    assert seen(first) == seen(again) != seen(other)


def test_nights_hold_what_their_plans_say():
    plan = Plan(batch=0.1, epoch_steps=600, compiles=4.0, checks=20, save_every=600, first=5.0)
    rng = np.random.default_rng(3)
    segments = list(nights.play(plan, world().recorded[0], rng, 8.0))
    rows = {segment.row for segment in segments}
    seconds = sum(float(np.sum(segment.seconds)) for segment in segments)

    assert rows == {"FIRST", "STEP", "EPOCH_BOUNDARY", "VALIDATION_FIRST_STEP", "VALIDATION_STEP", "SAVE"}
    assert seconds == pytest.approx(8 * 3600, rel=0.02)
    assert 15 < sum(1 for s in segments if isinstance(s, nights.Gap) and s.row == "STEP" and s.work > 0) < 55


def test_the_others_rules_are_as_their_projects_state_them():
    rules = {rule.name: rule for rule in (Fixed(600.0), FiveTimesLongest(), SixTimesSlowest(), Akka(), Cassandra())}
    before = [rule.threshold() for rule in rules.values()]
    for rule in rules.values():
        rule.learn(Seen(100, 2.0, 4.25, 30.0))
        rule.settle()
    after = [rule.threshold() for rule in rules.values()]

    assert before == [600.0, 2700.0, 900.0, math.inf, math.inf]
    assert after == pytest.approx([600.0, 150.0, 180.0, 2.0 + 3.0 + 5.6 * 0.5, 36.84])


def test_phi_accrual_forgets_beyond_its_window():
    rule = Cassandra()
    rule.learn(Seen(1000, 10.0, 100.0, 10.0))
    rule.learn(Seen(1000, 1.0, 1.0, 1.0))

    assert rule.threshold() == pytest.approx(18.42)


def test_a_missed_goal_is_named_in_the_last_line():
    assert verdict([Goal("false alarms", 0.0, 2.0)]) == "all 1 goals hold"
    assert "slow 80 > 70" in verdict([Goal("slow", 80.0, 70.0), Goal("other", 1.0, 2.0)])
    assert "nothing nan" in verdict([Goal("nothing", math.nan, 2.0)])


@pytest.mark.costly
def test_four_stalls_cost_each_rule_its_silence_a_start_and_the_batches_since_the_checkpoint():
    [scores] = simulate(world(), 8.0, 3, KINDS[1:2]).values()
    often, seldom = (scores[OURS].accounts[every] for every in (OFTEN, DEFAULT))
    fixed = scores["fixed 10 min"].accounts[OFTEN]

    assert often.stalls == seldom.stalls == fixed.stalls == 4
    assert fixed.spent.stalled == pytest.approx(4 * 600.0, rel=0.05)
    assert 4 * 10 < often.spent.stalled < fixed.spent.stalled, "found sooner"
    assert often.spent.restart >= 4 * IMPORT
    assert often.spent.redone_batches <= 4 * OFTEN + 60 < seldom.spent.redone_batches <= 4 * DEFAULT + 60
    assert 0.9 < fixed.share < often.share < 1.0


def test_a_false_alarm_costs_a_restart():
    class Rules:
        alarms = 0
        rules = ()

    class Watched:
        alarms: dict[str, int] = {}  # noqa: RUF012 - read only
        rules = ()

    one = Rules()
    night = FourStalls(
        Plan(batch=1.0, epoch_steps=10, first=20.0), DetectorLimits(), np.random.default_rng(1), 1.0, 60.0
    )
    night.charge_alarms({"ours": one}, Watched())
    one.alarms = 2
    night.charge_alarms({"ours": one}, Watched())
    account = night.close(["ours"])["ours"]

    assert (account.needless, account.stalls) == (2, 0)
    assert account.spent.restart == 2 * (8.0 + 20.0 + 1.0)


@pytest.mark.costly
def test_trainings_on_a_gpu_repeat_themselves_and_their_healthy_waits_end_while_the_sick_do_not() -> None:
    first = gpu_traces.played(20, 1, seed=3, processes=1)

    assert first == gpu_traces.played(20, 1, seed=3, processes=2)
    assert {one.kind for one in first} == {*gpu_traces.HEALTHY, *gpu_traces.SICK}
    assert all(one.judged == np.inf for one in first if one.kind in gpu_traces.HEALTHY)
    assert all(one.noticed <= 30 and one.acted <= 120 for one in first if one.kind in gpu_traces.SICK)
