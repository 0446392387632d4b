"""The numbers of the timeline are those of the journal, whatever the grid."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.core.actions import Announce
from stallguard.core.events import ClockGap, Exited, Heartbeat, Launched, ProbeConnected, ProbeNote, Sampled
from stallguard.core.readings import Machine, Memory, Process
from stallguard.report import attempt_rows, incidents, journal_record, timeline
from stallguard.report.attempt_rows import EPOCH, PLAIN, epoch_values
from stallguard.report.timeline import epoch_lines
from tests.report.nights import journal


def drawn(path):
    known = journal_record.read(path)
    tries, troubles = attempt_rows.attempts(known), incidents.incidents(known)
    return timeline.timeline(known, tries, troubles)


def values(made, key, series=0):
    [panel] = [panel for panel in made.panels if panel.key == key]
    return panel.series[series].values


def heartbeat(second, beats, *, attempt=1, beat_at=None, phase="step"):
    moment = 100.0 + (second if beat_at is None else beat_at)
    return second, Heartbeat(
        0.0, attempt, beats=beats, beat_at=moment if beats else 0.0, progress_at=moment, phase=phase
    )


@pytest.fixture
def two_attempts(tmp_path):
    """Ten batches a second for 60 s, silence for 30 s, a second attempt that starts for 10 s and goes on for 60 s."""
    happened = [(0, Launched(0.0, 1, 7))]
    happened += [heartbeat(s, 10 * s) for s in range(1, 61)]
    happened += [heartbeat(s, 600, beat_at=60) for s in range(61, 91)]
    happened += [
        (88, Announce("training.stalled", {"silence": "x"})),
        (90, Exited(0.0, 1, -15)),
        (90, Launched(0.0, 2, 8, slices=2)),
    ]
    happened += [heartbeat(s, 0, attempt=2, phase="importing") for s in range(91, 100)]
    happened += [heartbeat(100 + s, 10 * s, attempt=2) for s in range(61)]
    return drawn(journal(tmp_path / "j.jsonl", *sorted(happened, key=lambda pair: pair[0])))


def at(made, second):
    return min(range(len(made.times)), key=lambda index: abs(made.times[index] - second))


@pytest.mark.parametrize(("second", "pace"), [(5, 10), (59, 10), (65, 0), (85, 0), (95, 0), (105, 10), (155, 10)])
def test_throughput_is_steady_then_zero_in_the_silence_then_steady_again(two_attempts, second, pace):
    assert values(two_attempts, "rate")[at(two_attempts, second)] == pytest.approx(pace, abs=0.01)


def test_a_silence_has_no_batch_time(two_attempts):
    times = values(two_attempts, "batch")

    assert times[at(two_attempts, 30)] == pytest.approx(0.1)
    assert times[at(two_attempts, 75)] is None
    assert times[at(two_attempts, 130)] == pytest.approx(0.1)


def test_the_batch_time_does_not_rise_where_a_silence_begins_or_ends_inside_a_cell(tmp_path):
    happened = [(0, Launched(0.0, 1, 7)), *(heartbeat(s + 0.2, 10 * s) for s in range(1, 61))]
    happened += [heartbeat(s + 0.2, 600, beat_at=60.2) for s in range(61, 91)]
    made = drawn(journal(tmp_path / "j.jsonl", *happened))

    assert {value for value in values(made, "batch") if value is not None} == {0.1}


def test_slow_batches_are_a_level_and_no_row_of_spikes(tmp_path):
    happened = [(0, Launched(0.0, 1, 7))]
    happened += [heartbeat(s, s // 20, beat_at=s - s % 20) for s in range(1, 400)]
    made = drawn(journal(tmp_path / "j.jsonl", *happened))

    inner = [value for second, value in zip(made.times, values(made, "batch"), strict=True) if 50 < second < 350]
    assert inner == [pytest.approx(20.0)] * len(inner)


def test_bands_tell_phases_silence_and_sleep_and_marks_the_instants(tmp_path, two_attempts):
    kinds = [(band.kind, band.began, band.ended) for band in two_attempts.bands]
    assert ("silence", 60.0, 90.0) in kinds
    assert ("starting", 91.0, 100.0) in kinds
    assert [(mark.kind, mark.at) for mark in two_attempts.marks] == [("stall", 60.0), ("restart", 90.0)]

    slept = drawn(journal(tmp_path / "s.jsonl", (0, Launched(0.0, 1, 7)), heartbeat(1, 5), (500, ClockGap(0.0, 400.0))))
    assert [(band.began, band.ended) for band in slept.bands if band.kind == "asleep"] == [(100.0, 500.0)]


def test_phases_too_short_to_be_seen_do_not_cut_the_others(tmp_path):
    flicker = [heartbeat(s, s, phase="validation" if s == 5000 else "step") for s in range(1, 20_000, 3)]
    made = drawn(journal(tmp_path / "j.jsonl", (0, Launched(0.0, 1, 7)), *flicker))

    assert [band.kind for band in made.bands] == ["training"]


def test_readings_become_panels_and_what_is_always_zero_becomes_a_word(tmp_path):
    happened = [(0, Launched(0.0, 1, 7))]
    for second in range(0, 100, 2):
        happened.append((second, Sampled(0.0, Process(cpu=second * 1.5, rss=int(2e9)))))
        happened.append(
            (second, Sampled(0.0, Memory(swap_used=0, swap_outs=0, pressure="warn" if second > 50 else "normal")))
        )
        happened.append((second, Sampled(0.0, Machine(idle=0.25))))
    made = drawn(journal(tmp_path / "j.jsonl", *happened))

    assert values(made, "cpu")[at(made, 50)] == pytest.approx(1.5)
    assert {value for value in values(made, "memory") if value is not None} == {2e9}
    assert {value for value in values(made, "idle") if value is not None} == {0.25}
    assert {value for value in values(made, "pressure") if value is not None} == {0.0, 0.5}
    assert made.quiet == ["swap"]
    assert [panel.key for panel in made.panels] == ["cpu", "idle", "memory", "pressure"]


def test_a_counter_is_not_drawn_across_hours_without_a_reading(tmp_path):
    cpu = [(s, Sampled(0.0, Process(cpu=float(s)))) for s in (*range(50), *range(4000, 4050))]
    made = drawn(journal(tmp_path / "j.jsonl", (0, Launched(0.0, 1, 7)), *cpu))

    assert values(made, "cpu")[at(made, 25)] == pytest.approx(1.0)
    assert values(made, "cpu")[at(made, 2000)] is None


def test_a_long_silence_is_a_throughput_of_nothing_to_its_end(tmp_path):
    happened = [(0, Launched(0.0, 1, 7)), *(heartbeat(s, 10 * s) for s in range(1, 61))]
    happened += [heartbeat(s, 600, beat_at=60) for s in range(61, 400)]
    happened.append((90, Announce("training.stalled", {"silence": "no progress"})))
    made = drawn(journal(tmp_path / "j.jsonl", *sorted(happened, key=lambda pair: pair[0])))

    rates = values(made, "rate")
    assert {rates[at(made, second)] for second in range(62, 398)} == {0.0}
    assert values(made, "batch")[at(made, 200)] is None


def with_loss(second, beats, loss, *, attempt=1, epoch=0, beat_at=None):
    moment = 100.0 + (second if beat_at is None else beat_at)
    return second, Heartbeat(
        0.0, attempt, beats=beats, beat_at=moment, progress_at=moment, phase="step", loss=loss, epoch=epoch, epochs=9,
        batch=beats % 100, batches=100, fits=1,
    )  # fmt: skip


@pytest.fixture
def resumed(tmp_path):
    """Epochs of 100 batches, 10 a second; a stall after 25 s, from 65 s on again from the beginning of the epoch."""
    happened = [(0, Launched(0.0, 1, 7))]
    happened += [with_loss(s, 10 * s, 5.0 - s / 10, epoch=s // 10) for s in range(1, 26)]
    happened += [with_loss(s, 250, 2.5, epoch=2, beat_at=25) for s in range(26, 60)]
    happened += [
        (40, Announce("training.stalled", {"silence": "x"})),
        (59, Exited(0.0, 1, -15)),
        (60, Launched(0.0, 2, 8, resumed=True)),
    ]
    happened += [with_loss(65 + s, 10 * s, 3.0 - s / 10, attempt=2, epoch=2 + s // 10) for s in range(1, 30)]
    happened += [(s, Sampled(0.0, Process(cpu=float(s if s < 60 else s - 60), rss=10**9))) for s in range(1, 95)]
    return drawn(journal(tmp_path / "j.jsonl", *sorted(happened, key=lambda pair: pair[0])))


def test_the_loss_of_a_stall_is_not_the_last_one_before_it(resumed):
    losses = values(resumed, "loss")

    assert losses[at(resumed, 20)] == pytest.approx(3.0, abs=0.1)
    assert {losses[at(resumed, second)] for second in range(27, 60)} == {None}
    assert losses[at(resumed, 80)] == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("key", ["loss", "batch", "rate", "cpu", "memory"])
def test_no_line_of_a_process_goes_on_in_the_next_one(resumed, key):
    [panel] = [panel for panel in resumed.panels if panel.key == key]

    for series in panel.series:
        assert series.values[at(resumed, 59.5)] is None
        assert any(value is not None for value in series.values[at(resumed, 70) :])


def test_epochs_are_marked_where_they_begin_and_again_where_they_are_resumed(resumed):
    found = [(round(one.at), one.epoch) for one in resumed.epochs]

    assert found == [(1, 1), (10, 2), (20, 3), (66, 3), (75, 4), (85, 5)]


def test_batches_that_are_trained_again_are_marked(resumed):
    [(began, ended)] = [(band.began, band.ended) for band in resumed.bands if band.kind == "redone"]

    assert began == pytest.approx(66, abs=1)
    assert ended == pytest.approx(70, abs=1)


def test_the_newest_result_of_validation_stands_until_the_next(tmp_path):
    happened = [(0, Launched(0.0, 1, 7)), *(heartbeat(s, 10 * s) for s in range(1, 61))]
    happened += [
        (second, ProbeNote(0.0, 1, "epoch", "", {"epoch": "1", "values": f"val_loss={loss} lr=0.1"}))
        for second, loss in ((20, 0.6), (40, 0.7))
    ]
    made = drawn(journal(tmp_path / "j.jsonl", *sorted(happened, key=lambda pair: pair[0])))
    shown = values(made, "loss")

    assert [shown[at(made, second)] for second in (10, 30, 50)] == [None, 0.6, 0.7]
    assert [panel.title for panel in made.panels if panel.key.startswith("metric")] == ["Learning rate"]


def note(second, results, *, attempt=1, pid=7):
    return second, ProbeNote(0.0, attempt, EPOCH, "", {"epoch": "1", "values": results}, pid=pid)


def test_a_metric_stands_with_its_validation_and_the_learning_rate_alone(tmp_path):
    path = journal(
        tmp_path / "j.jsonl",
        note(10, "loss=0.5 val_loss=0.6 accuracy=0.7 val_accuracy=0.65 learning_rate=0.001"),
        note(20, "loss=0.4 val_loss=0.7 accuracy=0.8 val_accuracy=0.66 learning_rate=0.0005"),
    )
    found = epoch_lines(journal_record.read(path))

    assert {chart: list(each) for chart, each in found.items()} == {
        "loss": ["val_loss"], "accuracy": ["accuracy", "val_accuracy"], "Learning rate": ["learning_rate"],
    }  # fmt: skip
    assert found["loss"]["val_loss"].value.tolist() == [0.6, 0.7]


def test_the_loss_of_a_training_goes_on_in_its_next_process(tmp_path):
    happened = [(0, Launched(0.0, 1, 7)), (0, ProbeConnected(0.0, 1, 7, place="a")), (50, Launched(0.0, 2, 8)),
                (50, ProbeConnected(0.0, 2, 8, place="a"))]  # fmt: skip
    happened += [
        (s, Heartbeat(0.0, 1 + s // 50, pid=7 + s // 50, beats=s, beat_at=100.0 + s, loss=9.0 - s / 20))
        for s in (10, 20, 60, 70)
    ]
    record = journal_record.read(journal(tmp_path / "j.jsonl", *sorted(happened, key=lambda pair: pair[0])))

    [(name, level)] = timeline.loss_points(record, record.heartbeat)

    assert name == "loss"
    assert level.value.tolist() == [8.5, 8.0, 6.0, 5.5]


def test_two_trainings_at_once_have_two_lines(tmp_path):
    happened = [
        (s, Heartbeat(0.0, 1, pid=pid, beats=s, beat_at=100.0 + s, loss=float(pid))) for s in (10, 20) for pid in (7, 8)
    ]
    record = journal_record.read(journal(tmp_path / "j.jsonl", (0, Launched(0.0, 1, 7)), *happened))

    assert [name for name, _ in timeline.loss_points(record, record.heartbeat)] == ["training 1", "training 2"]


@given(st.text(max_size=80))
def test_foreign_words_are_numbers_with_plain_names_or_nothing(text):
    for name, value in epoch_values({"values": text}).items():
        assert PLAIN.match(name)
        assert math.isfinite(value)
