"""The bench judges whole gaps; the detector judges events.  For the same gap they say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.core.detection.verdict import Circumstances, thresholds
from tests import examples
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import ALONE, Rates

BENCHES = Path(__file__).parents[3] / "scripts" / "benches"
SAMPLED = 0.25  # seconds between two readings of a process that is watched closely
# way of the scene: runs of the gap, as shares of its length
RUNS = {
    "deadlock": {"deadlock": 1.0, "external": 1.0},
    "socket": {"external": 1.0},
    "spin": {"spin": 1.0},
    "compile": {"work": 1.0},
}


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    from detection.detectors import Ours
    from detection.nights import Gap

    def detector_state(rows, way, seconds):
        rule = Ours(LIMITS, census=True, remote=False, blind=False)
        rule.rows = dict(rows)
        rule.now = 1e4
        bar = rule.bar("STEP")
        rule.see(Gap("STEP", seconds, trains=True, **{name: share * seconds for name, share in RUNS[way].items()}))
        return rule, bar

    return detector_state


@pytest.mark.costly
@settings(max_examples=examples.of(60, fast=10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.floats(0.002, 5.0), way=st.sampled_from(sorted(RUNS)), reach=st.floats(0.2, 0.94) | st.floats(1.06, 2.0)
)
def test_a_gap_is_an_alarm_at_both_levels_or_at_neither(ours, batch, way, reach):
    scene = Alone(batch=batch).train(max(60.0, 60 * batch))
    while scene.detector_state.clock.now - scene.detector_state.began > SAMPLED:
        scene.train(SAMPLED)  # the bench's gap begins with a batch, so this one does too
    names = {"deadlock": "deadlock", "socket": "external", "spin": "spin", "compile": "working"}
    row = scene.detector_state.rows["STEP"]
    seconds = reach * getattr(thresholds("STEP", row, Circumstances(), LIMITS), names[way])
    if abs(seconds - 0.5 * seconds / reach) < 1 or seconds < 4:
        return
    rule, _ = ours(scene.detector_state.rows, way, seconds)

    scene.silent(seconds, way)

    assert ("stalled" in scene.steps) == (rule.alarms == 1) == (reach > 1)
    assert ("suspect" in scene.steps) == (rule.alarms + rule.suspicions > 0)


# what the frame shows in the scene, and in the bench; whether there is a census; the threshold that counts
FRAMES = [
    (("lock", 0), "locked", False, "deadlock"),
    (("lock", 0), "locked", True, "deadlock"),
    (("lock", 1), "awake", False, "external"),
    (("sleep", 0), "awake", True, "external"),
    (("library", -1), "library", False, "external"),
    (("library", -1), "library", True, "deadlock"),
]


@pytest.mark.parametrize(("frame", "shown", "census", "counts"), FRAMES, ids=str)
@pytest.mark.parametrize("reach", [0.9, 1.1])
def test_both_levels_take_the_same_from_a_frame(monkeypatch, frame, shown, census, counts, reach):
    monkeypatch.syspath_prepend(str(BENCHES))
    from detection.detectors import Ours
    from detection.nights import Gap

    scene = Alone()
    if not census:
        scene.training.rates = Rates(cores=1.0, faults=50.0)
    scene.training.tree = replace(scene.tree, **ALONE)
    scene.train(60)
    row = scene.detector_state.rows["STEP"]
    seconds = reach * getattr(thresholds("STEP", row, Circumstances(), LIMITS), counts)
    rule = Ours(LIMITS, census=census, remote=False, blind=False)
    rule.rows, rule.now = dict(scene.detector_state.rows), 1e4
    rule.see(Gap("STEP", seconds, deadlock=seconds if census else 0.0, external=seconds, trains=True, frame=shown))

    scene.silent(seconds, "deadlock" if census else "no census", frame=frame)

    assert ("stalled" in scene.steps) == (rule.alarms == 1) == (reach > 1)


@settings(max_examples=examples.of(30, fast=5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.floats(0.01, 1.0), way=st.sampled_from(sorted(RUNS)), seconds=st.floats(3.0, 9.0))
def test_both_levels_learn_the_same_from_a_gap_that_ended_well(ours, batch, way, seconds):
    scene = Alone(batch=batch).train(60.0)
    rule, _ = ours(scene.detector_state.rows, way, seconds)

    scene.silent(seconds, way)
    gap = scene.now - scene.detector_state.began
    scene.progress(
        phase="step", beats=scene.heartbeat.beats + 1,
            fit_beats=scene.heartbeat.fit_beats + 1, batch=scene.heartbeat.batch + 1,
        longest=gap, longest_phase="step", step_s=scene.heartbeat.step_s + gap,
    )  # fmt: skip

    live, gapwise = scene.detector_state.rows["STEP"], rule.rows["STEP"]
    assert live.count == gapwise.count
    assert live.longest == pytest.approx(gapwise.longest, abs=0.5)
    for name in ("deadlock", "external", "spin"):
        assert getattr(live, name) == pytest.approx(getattr(gapwise, name), abs=1.0), name
    assert (live.unsettled > 0) == (gapwise.unsettled > 0)
