"""Slow is not stalled: told in about a minute, with its cause, and forgotten when it becomes normal."""

from __future__ import annotations

import random

import pytest

from stallguard.core.detection.slowdown import Slowdown
from tests.simulation.alone import Alone


class Road(Alone):
    """A training whose batches can be made slower, each second of them with its costs."""

    def drive(self, seconds: float, *, batch: float, cpu: float, queue: float = 0.0, waits: float = 0.0) -> Road:
        rng = random.Random(7)
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            done = max(1, round(1.0 / batch * rng.uniform(0.95, 1.05)))
            took = done * batch
            self.sample(cpu=self.tree.cpu + cpu * done, run_queue=self.tree.run_queue + queue * done)
            self.progress(
                phase="step", beats=self.heartbeat.beats + done, fits=1,
            fit_beats=self.heartbeat.fit_beats + done, epoch=0,
                batch=self.heartbeat.batch + done, longest=1.2 * batch, longest_phase="step",
                step_s=self.heartbeat.step_s + took - waits * done, input_s=self.heartbeat.input_s + waits * done,
            )  # fmt: skip
        return self

    def slow_after(self, **how: float) -> float:
        began = self.now
        while self.now - began < 600:
            self.drive(1.0, **how)
            if self.detector_state.judgement.slow > 1.0:
                return self.now - began
        return float("inf")


@pytest.mark.parametrize(("factor", "at_most"), [(2.0, 90.0), (3.0, 70.0), (5.0, 60.0)])
def test_a_slowdown_is_reported_within_about_a_minute(factor, at_most):
    road = Road().drive(300, batch=0.05, cpu=0.03)

    assert road.slow_after(batch=0.05 * factor, cpu=0.03 * factor) <= at_most
    assert road.detector_state.judgement.slow == pytest.approx(factor, rel=0.3)
    assert road.detector_state.judgement.step == "healthy"


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ({"batch": 0.2, "cpu": 0.12}, "heavier"),
        ({"batch": 0.2, "cpu": 0.031, "queue": 0.15}, "contention"),
        ({"batch": 0.2, "cpu": 0.031}, "input"),
        ({"batch": 0.2, "cpu": 0.06, "waits": 0.14}, "input"),
    ],
)
def test_the_cause_is_what_grew_with_the_batch_time(how, cause):
    road = Road().drive(300, batch=0.05, cpu=0.03)
    road.slow_after(**how)

    assert road.detector_state.judgement.slow_cause == cause


def test_twenty_percent_more_is_not_reported():
    road = Road().drive(300, batch=0.05, cpu=0.03)

    assert road.slow_after(batch=0.06, cpu=0.036) == float("inf")


def test_one_long_pause_is_no_slowdown():
    road = Road().drive(300, batch=0.05, cpu=0.03)
    for _ in range(20):
        road.now += 4.0
        road.progress(
            phase="step", beats=road.heartbeat.beats + 1,
            fit_beats=road.heartbeat.fit_beats + 1, batch=road.heartbeat.batch + 1,
            longest=4.0, longest_phase="step", step_s=road.heartbeat.step_s + 4.0,
        )  # fmt: skip
        road.drive(20, batch=0.05, cpu=0.03)

    assert road.detector_state.judgement.slow == 1.0


def test_it_is_over_when_batches_are_as_fast_as_before():
    road = Road().drive(300, batch=0.05, cpu=0.03).drive(200, batch=0.2, cpu=0.12).drive(60, batch=0.05, cpu=0.03)

    assert road.detector_state.judgement.slow == 1.0
    assert not road.detector_state.judgement.slow_cause


def test_after_a_quarter_of_an_hour_the_new_level_is_the_normal_one():
    road = Road().drive(300, batch=0.05, cpu=0.03).drive(1100, batch=0.2, cpu=0.12)

    assert road.detector_state.judgement.slow == 1.0
    assert road.slow_after(batch=0.2, cpu=0.12) == float("inf")


def test_its_state_stays_small():
    road = Road().drive(4000, batch=0.05, cpu=0.03)

    assert isinstance(road.detector_state.slowdown, Slowdown)
    assert len(road.detector_state.slowdown.history) <= 120
