"""What one attempt teaches the next: the normal gaps, at rest."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.detection import detector
from stallguard.core.detection.verdict import Circumstances, thresholds
from stallguard.core.events import Launched, ProbeConnected
from stallguard.core.learned import MOST, Learned, merged, settle
from tests.simulation.alone import LIMITS, Alone


def test_a_new_attempt_starts_with_the_floors_that_the_one_before_earned():
    learned = detector.export(Alone().train(120).detector_state)
    scene = Alone(learned=learned).train(3)

    assert scene.silent_until("stalled") <= 11.0


def test_a_stranger_starts_with_the_priors():
    assert Alone().train(0.3).silent_until("stalled") > 100


def test_what_was_learned_survives_its_encoding():
    learned = detector.export(Alone().train(120).detector_state)

    assert msgspec.json.decode(msgspec.json.encode(learned), type=Learned) == learned


def test_a_long_past_is_outvoted_by_a_few_hundred_new_batches():
    past = detector.export(Alone(batch=0.01).train(2000).detector_state)
    assert past.rows["STEP"].count == MOST

    scene = Alone(learned=past, batch=2.0).train(1200)

    middle = thresholds("STEP", scene.detector_state.rows["STEP"], Circumstances(), LIMITS)
    assert middle.spin >= 5 * 2.0


def test_another_version_of_the_framework_is_a_stranger():
    def night(version: str, learned: Learned | None = None) -> Alone:
        scene = Alone(learned=learned)
        scene.feed(ProbeConnected(at=scene.now, attempt=1, pid=1, versions={"tensorflow": version, "numpy": "2.0"}))
        return scene

    learned = detector.export(night("2.19.1").train(120).detector_state)

    assert night("2.19.1", learned).detector_state.rows != {}
    assert night("2.21.0", learned).detector_state.rows == {}


@pytest.mark.parametrize("other", [{"device": "cpu"}, {"slices": 4}])
def test_another_device_or_smaller_batches_make_the_past_foreign(other):
    scene = Alone()
    scene.feed(Launched(at=scene.now, attempt=1, pid=1))
    learned = detector.export(scene.train(120).detector_state)

    same, changed = detector.start(learned), detector.start(learned)
    same = detector.observe(same, Launched(at=1.0, attempt=2, pid=2), LIMITS)
    changed = detector.observe(changed, Launched(at=1.0, attempt=2, pid=2, **other), LIMITS)

    assert same.rows != {}
    assert changed.rows == {}


def test_exporting_twice_changes_nothing():
    once = detector.export(Alone().train(120).detector_state)
    twice = detector.export(detector.start(once))

    assert twice == once


def test_what_several_trainings_taught_is_no_less_patient_than_what_each_did() -> None:
    fast = detector.export(Alone(batch=0.01).train(600).detector_state)
    slow = detector.export(Alone(batch=3.0).train(600).detector_state)
    both = merged([fast, slow])

    for name in ("deadlock", "external", "spin", "working", "silence"):
        patience = [
            getattr(thresholds("STEP", one.rows["STEP"], Circumstances(), LIMITS), name) for one in (both, fast, slow)
        ]
        assert patience[0] >= max(patience[1:]) * 0.99, name
    assert merged([fast]).rows == {name: settle(base) for name, base in fast.rows.items()}


def test_what_was_learned_on_another_device_is_left_out() -> None:
    here = detector.export(Alone().train(120).detector_state)
    there = msgspec.structs.replace(here, about={"device": "cpu"}, level=0.001)
    assert merged([there, here]).level == here.level
