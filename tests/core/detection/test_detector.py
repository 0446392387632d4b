"""The detector tells a stall from slowness in seconds, by what the process tree does inside the silence."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from stallguard.core.detection import detector, verdict
from stallguard.core.detection.verdict import row_now, row_of
from stallguard.core.events import Heartbeat, OutputHeld
from tests.simulation.alone import Alone

# ---- how fast, inside a step of a local job

STEADY = Heartbeat(
    at=100.0, attempt=1, beats=500, fit_beats=500, batch=50, epoch=2, fits=1, phase="step", progress_at=100.0,
    changes=1000, step_s=45.0, source="callbacks", longest=0.1, longest_phase="step",
)  # fmt: skip


@pytest.mark.parametrize(
    ("way", "evidence", "at_most"),
    [
        ("deadlock", "deadlock", 11.0),
        ("poller", "deadlock", 11.0),
        ("socket", "external wait", 31.0),
        ("sleeper", "external wait", 31.0),
        ("no census", "external wait", 31.0),
        ("spin", "spin", 122.0),
        ("compile", "working", 601.0),
        ("upload", "working", 601.0),
    ],
)
def test_a_stall_in_a_step_is_judged_as_soon_as_its_evidence_allows(way, evidence, at_most):
    scene = Alone().train(60)

    took = scene.silent_until("stalled", way)

    assert took <= at_most
    assert scene.detector_state.judgement.evidence == evidence


@pytest.mark.parametrize("batch", [0.001, 0.02, 1.0])
def test_the_length_of_a_batch_does_not_delay_a_deadlock(batch):
    assert Alone(batch=batch).train(120).silent_until("stalled") <= 11.0


@pytest.mark.costly
def test_a_deadlock_among_batches_of_a_minute_is_judged_within_one_batch():
    scene = Alone(batch=60.0).train(60.0 * 40)

    assert scene.silent_until("stalled") <= 60.0


def test_suspicion_comes_at_half_the_threshold_and_certainty_with_a_deadlock():
    scene = Alone().train(60)

    assert scene.silent_until("suspect") == pytest.approx(5.0, abs=0.6)
    assert not scene.detector_state.judgement.certain
    scene.silent_until("stalled")
    assert scene.detector_state.judgement.certain


@pytest.mark.parametrize("step", ["suspect", "stalled"])
def test_a_record_that_is_read_late_clears_nothing_of_what_came_after_its_batch(step):
    scene = Alone().train(60)
    silent = scene.silent_until(step, pulses=False)
    record = scene.heartbeat

    scene.progress(beats=record.beats + 1, progress_at=record.progress_at + 0.1, beat_at=record.progress_at + 0.1)

    assert scene.detector_state.judgement.step == step
    assert silent + scene.silent_until("stalled", pulses=False) <= 11.0


@pytest.mark.parametrize("step", ["suspect", "stalled"])
def test_nor_if_it_shows_that_the_silence_is_in_a_validation_that_began_after_the_batch(step):
    scene = Alone().train(60)
    silent = scene.silent_until(step, pulses=False)
    record = scene.heartbeat
    began = record.progress_at + 0.1

    scene.progress(
        beats=record.beats + 1, progress_at=began, beat_at=began, phase_at=began, phase="validation", checks=1
    )

    judgement = scene.detector_state.judgement
    assert (judgement.step, judgement.phase, judgement.since) == (step, "validation", began)
    # 120 s: what the first step of a validation can take while nothing is known of it.
    assert silent + scene.silent_until("stalled", pulses=False) <= 121.0


@pytest.mark.parametrize("step", ["suspect", "stalled"])
def test_a_record_of_a_batch_that_ended_now_clears_it(step):
    scene = Alone().train(60)
    scene.silent_until(step, pulses=False)

    scene.progress(beats=scene.heartbeat.beats + 1)

    assert scene.detector_state.judgement.step == "recovering"


def test_the_time_for_which_a_training_waits_for_its_reader_is_no_gap():
    scene = Alone().train(60)

    for _ in range(100):
        scene.silent(2, "sleeper").tell(OutputHeld, seconds=2.0)

    assert {"suspect", "stalled"}.isdisjoint(scene.steps)
    assert 28 <= scene.silent_until("stalled", "sleeper") <= 31


def test_a_stopped_process_is_reported_after_five_seconds():
    scene = Alone().train(60)

    assert scene.silent_until("stopped", state="stopped", pulses=False) <= 5.5


def test_the_end_of_the_process_is_reported_at_once_and_nothing_follows_it():
    scene = Alone().train(60).exit(code=-9)

    assert scene.detector_state.judgement.step == "exited"
    scene.silent(100)
    assert scene.detector_state.judgement.step == "exited"


# ---- what is known about the place of the silence


def test_the_first_batch_may_be_idle_for_minutes_while_nothing_is_known():
    scene = Alone().enter("step", fits=1, fit_beats=0, batch=0)

    assert 290 <= scene.silent_until("stalled", "sleeper") <= 301


def test_a_compile_of_ten_minutes_is_no_stall():
    scene = Alone().enter("tracing", fits=1, fit_beats=0)

    scene.silent(440, "compile")

    assert "suspect" not in scene.steps


def test_the_first_steps_wait_two_minutes_before_idleness_is_a_stall():
    scene = Alone(batch=1.0).train(5)

    assert 118 <= scene.silent_until("stalled") <= 121


def test_a_second_night_judges_a_deadlock_before_the_first_batch_in_under_a_minute():
    learned = detector.export(Alone().train(120).detector_state)
    scene = Alone(learned=learned).enter("step", fits=1, fit_beats=0, batch=0)

    assert scene.silent_until("stalled") <= 46.0


def test_a_long_idle_checkpoint_is_no_stall():
    scene = Alone().train(60).enter("checkpoint")

    scene.silent(200, "socket")

    assert "suspect" not in scene.steps


def test_a_deadlock_between_epochs_is_judged_in_twenty_seconds():
    scene = Alone().train(30)
    for epoch in (1, 2, 3):
        scene.enter("epoch end").enter("epoch start", epoch=epoch, batch=0).train(20, epoch=epoch)
    scene.enter("epoch end")

    assert 15 <= scene.silent_until("stalled") <= 21


def test_a_training_that_is_over_but_does_not_go_is_found():
    scene = Alone().train(60).enter("finishing")

    assert scene.silent_until("stalled") <= 61


@pytest.mark.costly
def test_the_scripts_own_code_may_compute_for_hours():
    scene = Alone().silent(3 * 3600.0, "spin")

    assert scene.steps == ["healthy"]


def test_a_job_that_talks_to_other_hosts_gets_more_time():
    scene = Alone()
    scene.training.tree = msgspec.structs.replace(scene.tree, remote=True)
    scene.train(60)

    assert 70 <= scene.silent_until("stalled", "socket") <= 76


# ---- announced, asleep, starved


def test_an_announced_operation_is_not_judged_until_its_time_is_over():
    scene = Alone().train(60).enter("named", expect_until=100.0 + 60 + 3600)

    scene.silent(3500, "deadlock")
    assert "suspect" not in scene.steps
    assert scene.silent_until("stalled") <= 300


def test_an_hour_of_sleep_is_no_silence():
    scene = Alone().train(60).sleep(3600, clock_runs=True)

    scene.silent(4)
    assert "suspect" not in scene.steps
    scene.train(60)
    assert scene.steps == ["healthy"]
    assert scene.detector_state.rows["STEP"].longest < 10


def test_a_starved_supervisor_sees_no_stall_and_then_judges_again():
    scene = Alone().train(60)
    scene.now += 8.0  # nothing at all reached the detector meanwhile

    scene.silent(4)
    assert "suspect" not in scene.steps
    assert scene.silent_until("stalled") <= 12


@pytest.mark.parametrize("asleep", [True, False])
def test_no_verdict_falls_in_the_first_seconds_after_a_pause_of_the_supervisor(asleep):
    scene = Alone().train(60).silent(597, "compile")
    if asleep:
        scene.sleep(3600, clock_runs=True)
    else:
        scene.now += 20.0

    scene.silent(8, "compile")
    assert "stalled" not in scene.steps
    scene.silent(8, "compile")
    assert "stalled" in scene.steps


def test_work_between_two_merged_records_is_not_taken_for_a_compile():
    scene = Alone().train(60)
    for _ in range(20):
        scene.now += 0.8
        scene.sample(cpu=scene.tree.cpu + 0.8, minor_faults=scene.tree.minor_faults + 4000)
        scene.train(0.2)

    assert scene.detector_state.rows["STEP"].unsettled == 0
    assert scene.silent_until("stalled", "spin") <= 122


def test_a_process_that_was_stopped_for_an_hour_may_go_on():
    scene = Alone().train(60).silent(3600, state="stopped", pulses=False)
    assert scene.detector_state.judgement.step == "stopped"

    scene.silent(3, "spin", state="running").train(60)

    assert scene.steps == ["healthy", "suspect", "stopped", "healthy"]


def test_time_that_runs_backwards_is_borne():
    scene = Alone().train(60)
    scene.now -= 50.0
    scene.silent(2, "spin").train(20)

    assert scene.steps == ["healthy"]
    scene.now += 40
    scene.train(20)
    assert scene.silent_until("stalled") <= 11


def after(seconds: float, **changes: object) -> Heartbeat:
    return replace(STEADY, at=100.0 + seconds, progress_at=100.0 + seconds, **changes)


def rows(before: Heartbeat, heartbeat: Heartbeat, watched: float = 1e9) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    for gap in detector.between(before, heartbeat, watched):
        count, longest = found.get(gap.row, (0, 0.0))
        found[gap.row] = (count + gap.count, max(longest, gap.seconds))
    return found


def test_ten_steps_are_ten_gaps_with_the_mean_of_the_time_inside_them():
    heartbeat = after(1.0, beats=510, fit_beats=510, batch=60, step_s=45.9, longest=0.2)
    found = detector.between(STEADY, heartbeat, 1e9)

    assert rows(STEADY, heartbeat)["STEP"] == (10, 0.2)
    assert [gap.seconds for gap in found if gap.row == "STEP" and gap.count == 9] == [pytest.approx(0.7 / 9)]


def test_the_longest_gap_across_an_epochs_end_is_not_held_against_the_step():
    heartbeat = after(3.0, beats=520, fit_beats=520, batch=5, epoch=3, step_s=47.0, longest=1.4)

    assert rows(STEADY, heartbeat)["EPOCH_FIRST_STEP"] == (1, 1.4)
    assert rows(STEADY, heartbeat)["STEP"][1] < 0.2


def test_a_first_batch_is_not_held_against_the_step():
    before = replace(STEADY, fit_beats=0, beats=0, batch=0)
    heartbeat = replace(after(40.0, beats=3, fit_beats=3, batch=3, longest=39.0), epoch=2)

    assert rows(before, heartbeat)["FIRST"] == (1, 39.0)
    assert rows(before, heartbeat)["STEP"][1] < 5


def test_no_gap_is_longer_than_the_watched_time():
    heartbeat = after(3600.0, beats=501, longest=3600.0)

    assert max(seconds for _, seconds in rows(STEADY, heartbeat, watched=4.0).values()) <= 4.0


def test_beats_without_phases_make_one_stream():
    before = replace(STEADY, source="hand", phase="idle")
    heartbeat = replace(
        after(10.0, beats=520), source="hand", phase="idle", longest=0.7, longest_phase="idle", fit_beats=520
    )

    assert rows(before, heartbeat) == {"UNCLASSIFIED": (20, 0.7)}


@pytest.mark.parametrize(
    ("phase", "fit_beats", "batch", "row"),
    [
        ("importing", 0, -1, "IMPORTING"),
        ("epoch start", 0, 0, "FIRST"),
        ("step", 0, 0, "FIRST"),
        ("tracing", 900, 30, "FIRST"),
        ("first run", 900, 30, "FIRST"),
        ("step", 900, 30, "STEP"),
        ("step", 900, 0, "EPOCH_FIRST_STEP"),
        ("step", 900, -1, "STEP"),
        ("input", 900, 30, "STEP"),
        ("input", 900, -1, "EPOCH_FIRST_STEP"),
        ("between", 900, 30, "BATCH_CALLBACKS"),
        ("epoch start", 900, 0, "EPOCH_BOUNDARY"),
        ("epoch end", 900, 30, "EPOCH_BOUNDARY"),
        ("checkpoint", 900, 30, "SAVE"),
        ("idle", 900, 30, "IDLE"),
        ("finishing", 900, 30, "EXIT"),
        ("named", 900, 30, "NAMED"),
    ],
)
def test_every_phase_has_its_row(phase, fit_beats, batch, row):
    assert row_of(phase, source="callbacks", fit_beats=fit_beats, batch=batch, checked=False) == row


def test_the_first_batch_of_a_validation_is_judged_apart():
    checking = replace(STEADY, phase="validation", checks=40)

    assert row_now(checking, checks_before=40) == "VALIDATION_FIRST_STEP"
    assert row_now(checking, checks_before=39) == "VALIDATION_STEP"


def test_a_script_that_only_beats_by_hand_is_a_stream_without_phases() -> None:
    at = {"source": "hand", "batch": -1, "checked": False}

    assert verdict.row_of("importing", fit_beats=40, **at) == verdict.UNCLASSIFIED
    assert verdict.row_of("importing", fit_beats=0, **at) == verdict.IMPORTING


def test_a_loop_without_a_fit_counts_its_batches_from_the_start() -> None:
    heartbeat = Heartbeat(at=9.0, attempt=1, beats=40, source="hand", phase="importing")

    assert row_now(heartbeat, 0) == verdict.UNCLASSIFIED
    assert row_now(replace(heartbeat, source="function", phase="step"), 0) == verdict.STEP
