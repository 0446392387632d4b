"""A phase in which no silence is a stall has no limit: neither 277,777 hours nor, in JSON, 1000000000.0 seconds."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core import messages
from stallguard.core.limits import LEAST_PATIENCE, NEVER
from stallguard.core.run import with_attempt
from stallguard.core.verdicts import Judgement
from stallguard.report import status_rows
from stallguard.supervisor.live_status import judged, snapshot
from tests.simulation.simulation import Simulation


@pytest.mark.parametrize(("threshold", "shown"), [(NEVER, None), (NEVER * LEAST_PATIENCE, None), (900.0, 900.0)])
def test_a_limit_out_of_reach_is_none(threshold, shown):
    assert messages.limit(threshold) == shown
    assert judged(Judgement(threshold=threshold)).threshold == shown


def test_status_of_a_run_that_imports_says_so_in_words_and_in_json():
    world = Simulation()
    world.silent(40)
    detector_state = world.run.detector_state
    busy = msgspec.structs.replace(
        detector_state.judgement, step="healthy", threshold=NEVER * 0.5, since=world.now - 40
    )
    one = msgspec.structs.replace(
        world.run.training, detector_state=msgspec.structs.replace(detector_state, judgement=busy)
    )
    each = tuple(one if old.key == one.key else old for old in world.run.current.trainings)
    run = with_attempt(world.run, trainings=each)
    shown = msgspec.json.decode(msgspec.json.encode(snapshot("night", run, world.now)))

    assert shown["judgement"]["threshold"] is None
    said = dict(status_rows.rows(shown))
    assert said["silent"] == "for 40 s, no time limit holds here"
    assert status_rows.silence_bar(shown) == ""
    assert messages.silence(world.run, one)["threshold"] == "no time limit holds here"
