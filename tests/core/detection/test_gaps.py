"""Two absolute records become gaps of the right rows, however much happened in between."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stallguard.core.detection import gaps, phases
from stallguard.core.detection.phases import row_now, row_of
from stallguard.core.events import Heartbeat

STEADY = Heartbeat(
    at=100.0, attempt=1, beats=500, fit_beats=500, batch=50, epoch=2, fits=1, phase="step", progress_at=100.0,
    changes=1000, step_s=45.0, source="callbacks", longest=0.1, longest_phase="step",
)  # fmt: skip


def after(seconds: float, **changes: object) -> Heartbeat:
    return replace(STEADY, at=100.0 + seconds, progress_at=100.0 + seconds, **changes)


def rows(before: Heartbeat, heartbeat: Heartbeat, watched: float = 1e9) -> dict[str, tuple[int, float]]:
    found: dict[str, tuple[int, float]] = {}
    for gap in gaps.between(before, heartbeat, watched):
        count, longest = found.get(gap.row, (0, 0.0))
        found[gap.row] = (count + gap.count, max(longest, gap.seconds))
    return found


def test_ten_steps_are_ten_gaps_with_the_mean_of_the_time_inside_them():
    heartbeat = after(1.0, beats=510, fit_beats=510, batch=60, step_s=45.9, longest=0.2)
    found = gaps.between(STEADY, heartbeat, 1e9)

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

    assert phases.row_of("importing", fit_beats=40, **at) == phases.UNCLASSIFIED
    assert phases.row_of("importing", fit_beats=0, **at) == phases.IMPORTING


def test_a_loop_without_a_fit_counts_its_batches_from_the_start() -> None:
    heartbeat = Heartbeat(at=9.0, attempt=1, beats=40, source="hand", phase="importing")

    assert row_now(heartbeat, 0) == phases.UNCLASSIFIED
    assert row_now(replace(heartbeat, source="function", phase="step"), 0) == phases.STEP
