"""Recorded trainings, decided again: every real stall is found, and nothing healthy is ever suspected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from detection import real, traces

from stallguard.core.events import Collected, Exited, Launched, Sampled
from stallguard.core.limits import DetectorLimits, Limits
from stallguard.core.readings import Process
from stallguard.report.replay import Verdict, replay_run

ROOT = Path(__file__).parents[2]
SMALL = ROOT / "tests" / "recordings" / "traces"
FULL = Path(os.environ.get("STALLGUARD_TRACES", ROOT.parent / "shared" / "recordings" / "traces"))
LIMITS = DetectorLimits()
HEALTHY = sorted(path.stem for path in SMALL.glob("*.jsonl") if not path.stem.startswith("stall_"))


def decided(name: str, limits: DetectorLimits = LIMITS, where: Path = SMALL) -> list[Verdict]:
    events = traces.events(traces.read(where / f"{name}.jsonl"))
    return real.decided(events, limits)


def latency(name: str, where: Path = SMALL) -> tuple[float, str]:
    trace = traces.read(where / f"{name}.jsonl")
    began = next(at for at, code, _ in trace.marks if code == "stall_begin")
    verdict = next(v for v in decided(name, where=where) if v.step == "stalled")
    return verdict.at - began, verdict.cause


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_never_even_suspected(name):
    assert decided(name) == []


@pytest.mark.parametrize(
    ("name", "cause", "at_most"),
    [
        ("stall_lock", "deadlock", 11.0),
        ("stall_tfdata_gen", "deadlock", 11.0),
        ("stall_sigstop", "stopped", 5.5),
        ("stall_spin", "spin", 122.0),
    ],
)
def test_a_real_stall_is_found_in_time_and_by_its_kind(name, cause, at_most):
    took, found = latency(name)

    assert 0 < took <= at_most
    assert found == cause


def test_a_first_batch_that_never_comes_is_not_called_a_stall_in_its_first_minute():
    assert decided("stall_first_batch") == []


@pytest.mark.parametrize("name", HEALTHY)
def test_an_hour_of_sleep_raises_no_suspicion(name):
    trace = traces.read(SMALL / f"{name}.jsonl")
    events = list(traces.events(trace))
    began, ended = real.span(trace)
    for part in (0.2, 0.5, 0.8):
        for announced in (True, False):
            at = began + part * (ended - began)
            assert real.decided(real.asleep(events, at, 3600.0, announced=announced), LIMITS) == []


@pytest.mark.parametrize("name", HEALTHY)
def test_a_starved_supervisor_raises_no_suspicion(name):
    trace = traces.read(SMALL / f"{name}.jsonl")
    events = list(traces.events(trace))
    began, ended = real.span(trace)
    for part in (0.2, 0.5, 0.8):
        assert real.decided(real.starved(events, began + part * (ended - began), 8.0), LIMITS) == []


@pytest.mark.parametrize(("way", "at_most"), [("deadlock", 11.0), ("external wait", 31.0), ("spin", 122.0)])
def test_a_stall_put_into_a_real_training_is_found_in_time(way, at_most):
    trace = traces.read(SMALL / "lstm_small.jsonl")
    at = next(at for at, code, batch in trace.marks if code == "b" and batch == "30" and at > 12) + 0.001
    stuck = real.stalled(trace, at, real.WAYS[way], 140.0)
    found = real.first_stall(real.decided(traces.events(stuck), LIMITS))

    assert found is not None
    assert found.cause == way
    assert found.at - at <= at_most


def test_without_wait_sites_a_deadlock_takes_half_a_minute():
    trace = traces.read(SMALL / "stall_lock.jsonl")
    stuck = real.stalled(trace, 6.6, real.WAYS["deadlock"], 60.0)
    found = real.first_stall(real.decided(real.without_census(traces.events(stuck)), LIMITS))

    assert found is not None
    assert found.cause == "external wait"
    assert found.at - real.stall_began(trace) <= 31.0


@pytest.mark.whole
@pytest.mark.skipif(
    not FULL.is_dir(), reason="the full recordings are not here; STALLGUARD_TRACES names their directory"
)
def test_the_full_recordings_are_decided_as_well_as_the_small_ones():
    for path in sorted(FULL.glob("*.jsonl")):
        verdicts = decided(path.stem, where=FULL)
        if not path.stem.startswith("stall_"):
            assert verdicts == [], path.stem
        elif path.stem != "stall_first_batch":
            assert latency(path.stem, FULL)[0] <= 122.0, path.stem


def test_readings_are_as_sparse_as_a_live_sampler_takes_them_and_dense_in_a_silence():
    events = traces.events(traces.read(SMALL / "stall_spin.jsonl"))
    seen = [event for event, _, _ in real.thinned(events, LIMITS) if isinstance(event, Sampled)]
    read = [event for event in seen if isinstance(event.reading, Process)]
    before = [event for event in read if 3.0 < event.at < 7.0]
    within = [event for event in read if 20.0 < event.at < 40.0]

    assert 3 <= len(before) <= 6
    assert 75 <= len(within) <= 82
    assert all(event.reading.census for event in within)


def test_other_settings_decide_otherwise():
    patient = decided("stall_lock", DetectorLimits(patience=4.0))

    assert [v.step for v in patient] == ["suspect"]


def test_a_contended_machine_is_reported_as_slow_or_not_at_all_but_never_as_a_stall():
    assert decided("contention") == []


def run_of(name: str) -> list:
    """Return a trace as the events of a whole run, in which the evidence was gathered and the child then ended."""
    events = list(traces.events(traces.read(SMALL / f"{name}.jsonl")))
    stalled = next(v.at for v in decided(name) if v.step == "stalled")
    return sorted(
        [
            Launched(at=0.0, attempt=1, pid=7),
            *(event for event in events if event.at < stalled + 6.0),
            Collected(at=stalled + 2.0, incident=1, seconds=2.0),
            Exited(at=stalled + 6.0, attempt=1, code=-15),
        ],
        key=lambda event: event.at,
    )


def test_a_run_is_decided_by_the_whole_core_from_its_dump_to_its_restart():
    found = replay_run(run_of("stall_lock"), Limits())

    assert [v.step for v in found.verdicts] == ["suspect", "stalled"]
    assert [deed.action for deed in found.actions][:2] == ["dump", "restart"]
    assert "nothing in the process can wake them" in found.actions[0].why


def test_a_run_that_only_observes_would_not_have_been_touched():
    found = replay_run(run_of("stall_lock"), Limits(observe=True))

    assert "restart" not in [deed.action for deed in found.actions][:-1]


def test_more_patience_would_have_left_a_run_alone():
    found = replay_run(run_of("stall_lock"), Limits(detector=DetectorLimits(patience=3.0)))

    assert [v.step for v in found.verdicts] == ["suspect"]
