"""What holds for every history: no steady training is ever called stalled, and no order of events breaks it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stallguard.core.detection import detector
from stallguard.core.detection.verdict import STEPS
from stallguard.core.events import (
    ClockGap,
    Exited,
    Heartbeat,
    ProbeConnected,
    ProbeNote,
    Sampled,
    SensorBlocked,
    Ticked,
)
from stallguard.core.readings import Device, Memory, Process
from stallguard.probe.wire import PHASES, SOURCES
from tests import examples
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import OWN, SILENCES

SEVERAL = settings(max_examples=examples.of(30, fast=5))


@pytest.mark.costly
@SEVERAL
@given(
    batch=st.floats(0.3, 15.0),
    stretch=st.lists(st.floats(0.3, 2.5), min_size=40, max_size=60),
    way=st.sampled_from(sorted(SILENCES)),
)
@example(batch=15.0, stretch=[1.0] * 40 + [2.5], way="deadlock")
@example(batch=15.0, stretch=[2.5] * 3 + [0.3] * 40, way="spin")
def test_a_steady_beat_within_its_baseline_is_never_called_stalled(batch, stretch, way):
    scene = Alone().train(2)

    for factor in stretch:
        scene.step(batch * factor, way)

    assert "stalled" not in scene.steps


times = st.floats(0, 1e5) | st.floats(-1e3, 1e9)
counts = st.integers(-1, 10**7)
readings = st.one_of(
    st.builds(
        Process,
        state=st.sampled_from([None, "running", "sleeping", "stopped", "zombie"]),
        cpu=st.none() | st.floats(0, 1e6),
        io=st.none() | counts,
        minor_faults=st.none() | counts,
        run_queue=st.none() | st.floats(0, 1e6),
        census=st.sampled_from([None, OWN, {}, {"sock": 3}]),
        remote=st.none() | st.booleans(),
    ),
    st.builds(
        Device,
        moved=st.none() | st.booleans(),
        power=st.none() | st.floats(0, 500),
        used_by_run=st.none() | st.booleans(),
    ),
    st.builds(Memory, stall_some=st.none() | st.floats(0, 1)),
)
records = st.builds(
    Heartbeat,
    at=times, attempt=st.just(1), beats=counts, changes=counts, phase=st.sampled_from(PHASES), progress_at=times,
    phase_at=times, sent_at=times, longest=st.floats(0, 1e4), longest_phase=st.sampled_from(PHASES), fits=counts,
    fit_beats=counts, epoch=counts, batch=counts, checks=counts, source=st.sampled_from(SOURCES), poll_at=times,
    step_s=st.floats(0, 1e6), input_s=st.floats(0, 1e6), expect_until=times, iterations=counts, saves=counts,
)  # fmt: skip
events = st.one_of(
    records,
    st.builds(Sampled, at=times, reading=readings),
    st.builds(Ticked, at=times),
    st.builds(ClockGap, at=times, seconds=st.floats(0, 1e5)),
    st.builds(SensorBlocked, at=times, sensor=st.just("process"), seconds=st.floats(0, 100)),
    st.builds(ProbeNote, at=times, attempt=st.just(1), kind=st.just("note"), text=st.just("")),
    st.builds(ProbeConnected, at=times, attempt=st.just(1), pid=st.just(1)),
)


@SEVERAL
@given(st.lists(events, max_size=30))
def test_no_order_of_events_and_times_breaks_it_and_every_move_is_in_the_table(history):
    detector_state = detector.start()
    for event in history:
        before = detector_state
        detector_state = detector.observe(detector_state, event, LIMITS)

        allowed = STEPS[before.judgement.step]
        assert detector_state.judgement.step in {before.judgement.step, *reachable(allowed)}
        assert detector_state.clock.now >= before.clock.now
        assert detector_state.judgement.gap >= 0


def reachable(moves: dict[str, str]) -> set[str]:
    """Return the states of one event: a record may end a doubt and settle it, then be doubted at once."""
    found = set(moves.values())
    return found | {state for middle in found for state in STEPS[middle].values()}


@SEVERAL
@given(st.lists(events, max_size=20), st.integers(-255, 255))
def test_nothing_happens_after_the_end(history, code):
    ended = detector.observe(detector.start(), Exited(at=1.0, attempt=1, code=code), LIMITS)

    detector_state = ended
    for event in history:
        detector_state = detector.observe(detector_state, event, LIMITS)
    assert detector_state == ended


@SEVERAL
@given(st.lists(events, min_size=1, max_size=15))
def test_its_state_is_small_whatever_it_has_seen(history):
    detector_state = detector.start()
    for _ in range(10):
        for event in history:
            detector_state = detector.observe(detector_state, event, LIMITS)

    assert len(msgspec.msgpack.encode(detector_state)) < 16_000


@SEVERAL
@given(
    st.lists(
        st.tuples(st.sampled_from(["train", "silent"]), st.floats(1.0, 12.0), st.sampled_from(sorted(SILENCES))),
        min_size=1,
        max_size=12,
    )
)
def test_a_verdict_is_never_faster_than_its_evidence(history):
    scene = Alone().train(30)
    for what, seconds, way in history:
        silent = scene.now - scene.detector_state.judgement.since
        assert scene.detector_state.judgement.step != "stalled" or silent >= 10.0
        scene.train(seconds) if what == "train" else scene.silent(seconds, way)
