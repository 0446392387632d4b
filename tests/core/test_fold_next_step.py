"""What stallguard does next, as `status` and `top` count it down."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from stallguard.core import fold, lifecycle
from stallguard.core.fold import NextStep, next_step
from stallguard.core.limits import NEVER, Limits
from stallguard.core.run import Run, with_attempt
from stallguard.core.verdicts import Judgement
from stallguard.report.status_rows import NEXT
from stallguard.report.status_rows import next_step as words

LIMITS = Limits()


def run(state: str, **fields) -> Run:
    judged = fields.pop("judged", Judgement("healthy"))
    begun = fold.begin(100.0)
    outside = replace(begun.training, detector_state=replace(begun.detector_state, judgement=judged))
    of_attempt = {name: fields.pop(name) for name in ("urgent", "launched") if name in fields}
    return replace(with_attempt(begun, trainings=(outside,), **of_attempt), state=state, **fields)


@pytest.mark.parametrize(("state", "step"), [("stopping", "kill"), ("killing", "give up"), ("backoff", "start")])
def test_a_deadline_is_counted_down(state: str, step: str) -> None:
    assert next_step(run(state, deadline=112.5), LIMITS) == NextStep(step, 12.5)
    assert next_step(run(state, deadline=math.inf), LIMITS) is None
    assert next_step(run(state, deadline=90.0), LIMITS) == NextStep(step, 0.0)


def test_a_possible_stall_becomes_one_at_its_threshold() -> None:
    suspect = Judgement("suspect", gap=5.0, threshold=12.0)
    assert next_step(run(lifecycle.SUSPECT, judged=suspect), LIMITS) == NextStep("stall", 7.0)
    endless = replace(suspect, threshold=NEVER)
    assert next_step(run(lifecycle.SUSPECT, judged=endless), LIMITS) is None


def test_a_stall_is_acted_upon_unless_it_is_paused_observed_or_left_alone() -> None:
    stalled = run(lifecycle.HOLDING, judged=Judgement("stalled", gap=30.0, since=70.0), urgent=True)
    assert next_step(stalled, LIMITS) == NextStep("act", 0.0)
    assert next_step(replace(stalled, quiet_until=200.0), LIMITS) is None
    assert next_step(stalled, replace(LIMITS, observe=True)) is None
    assert next_step(with_attempt(stalled, declined=99.0), LIMITS) is None
    stopped = run(lifecycle.HOLDING, judged=Judgement("stopped", gap=30.0, since=70.0))
    assert next_step(stopped, LIMITS) is None


def test_a_segment_ends_and_a_healthy_run_has_nothing_before_it() -> None:
    assert next_step(run(lifecycle.RUNNING, launched=40.0), LIMITS) is None
    assert next_step(run(lifecycle.RUNNING, launched=40.0), replace(LIMITS, segment=90.0)) == NextStep("segment", 30.0)
    assert next_step(run(lifecycle.DONE), LIMITS) is None


def test_every_step_has_its_words() -> None:
    for step in ("stall", "act", "kill", "give up", "start", "segment"):
        assert "{time}" in NEXT[step]
    assert words({"next_step": {"step": "act", "seconds": 114.0}}).startswith("acting on the stall in 1 min 54 s")
    assert words({"next_step": None}) == words({}) == words({"next_step": {"step": "of later versions"}}) == ""
