"""What one attempt teaches the next: the normal gaps, at rest."""

from __future__ import annotations

import msgspec

from stallguard.core import detector
from stallguard.core.learned import MOST, Learned
from tests.core.scene import LIMITS, Scene


def test_a_new_attempt_starts_with_the_floors_that_the_one_before_earned():
    learned = detector.export(Scene().train(120).judge)
    scene = Scene(learned=learned).train(3)

    assert scene.silent_until("stalled") <= 11.0


def test_a_stranger_starts_with_the_priors():
    assert Scene().train(0.3).silent_until("stalled") > 100


def test_what_was_learned_survives_its_encoding():
    learned = detector.export(Scene().train(120).judge)

    assert msgspec.json.decode(msgspec.json.encode(learned), type=Learned) == learned


def test_a_long_past_is_outvoted_by_a_few_hundred_new_batches():
    past = detector.export(Scene(batch=0.01).train(2000).judge)
    assert past.rows["STEP"].count == MOST

    scene = Scene(learned=past, batch=2.0).train(1200)

    middle = detector.thresholds("STEP", scene.judge.rows["STEP"], detector.Circumstances(), LIMITS)
    assert middle.spin >= 5 * 2.0


def test_exporting_twice_changes_nothing():
    once = detector.export(Scene().train(120).judge)
    twice = detector.export(detector.start(LIMITS, once))

    assert twice == once
