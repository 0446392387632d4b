"""The bench of slow trainings reads the line that is meant from the program, and says when a report is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import slow
from slowness import cases, runs
from slowness.cases import CASES
from slowness.runs import Bottleneck, Ran, Report
from slowness.surroundings import AROUND

from stallguard.core.events import Profiled
from stallguard.core.profile import Profile

BENCHES = Path(__file__).parents[1] / "scripts" / "benches"
PROFILED = Profiled(at=1.0, attempt=1, pid=7, profile=Profile(60.0, 120, {"step": 60.0}))


def case(name):
    return next(one for one in CASES if one.name == name)


def ran(*bottlenecks, others=0.0, code=0):
    """Return a run whose report names `bottlenecks`."""
    return Ran(code, Report(list(bottlenecks)), [PROFILED], 60.0, others)


def named(cause, program="", line=0):
    return Bottleneck(cause, 30.0, 0.9, str(program), line)


def test_every_program_has_one_bottleneck_and_at_most_one_is_healthy():
    assert len(CASES) == len({one.name for one in CASES}) == 20
    assert [one.name for one in CASES if not one.expected] == ["healthy"]
    assert all(one.around in AROUND for one in CASES)
    (line,) = case("generator").marked
    assert "sleep" in case("generator").path.read_text("utf-8").splitlines()[line - 1]


def test_the_right_cause_at_the_wrong_line_misses_a_goal():
    generator = case("generator")
    right = slow.judge(generator, ran(named("input-starvation", generator.path, generator.marked[0])))
    wrong = slow.judge(generator, ran(named("input-starvation", generator.path, 1)))
    other = slow.judge(generator, ran(named("slow-callback", generator.path, generator.marked[0])))
    assert all(goal.holds for goal in slow.goals_of([right], is_whole=False))
    assert [goal.name for goal in slow.goals_of([wrong], is_whole=False) if not goal.holds] == ["wrong lines"]
    assert not other.is_cause_right
    assert other.is_line_right


def test_something_said_of_a_healthy_training_is_wrong_unless_other_programs_ran():
    healthy = case("healthy")
    assert slow.judge(healthy, ran()).is_cause_right
    assert not slow.judge(healthy, ran(named("tiny-batches"))).is_cause_right
    assert not slow.judge(healthy, ran(named("busy-machine"))).is_cause_right
    assert slow.judge(healthy, ran(named("busy-machine"), others=1.5)).is_cause_right
    assert slow.judge(healthy, ran(named("low-priority"), others=1.5)).is_cause_right
    assert not slow.judge(healthy, ran(code=1)).is_cause_right


def test_a_report_without_the_field_is_never_right():
    without = Ran(0, Report(), [PROFILED], 60.0, 0.0)
    assert not slow.judge(case("generator"), without).is_cause_right
    assert not slow.judge(case("healthy"), without).is_cause_right
    not_sampled = Ran(0, Report([]), [], 60.0, 0.0)
    assert not slow.judge(case("healthy"), not_sampled).is_cause_right


@pytest.mark.live
def test_a_program_is_run_under_guard_and_the_sampler_sees_its_slow_line(tmp_path, monkeypatch):
    monkeypatch.setattr(cases, "PROGRAMS", tmp_path)
    loop = cases.Case("loop", f"A loop that waits in each batch.\n{LOOP}", "slow-script")
    (one,) = runs.run(loop, tmp_path / "runs")
    (line,) = loop.marked
    assert one.code == 0
    assert one.profile is not None
    at_line = sum(spot.seconds for spot in one.profile.spots if (spot.file, spot.line) == (str(loop.path), line))
    assert at_line / one.profile.seconds > 0.5


LOOP = """\
import time
import stallguard
for number in range(80):
    time.sleep(0.1)  # slow
    stallguard.beat()
"""
