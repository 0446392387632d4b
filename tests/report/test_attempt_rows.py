"""What a report makes of a run of several processes."""

from __future__ import annotations

import pytest

from stallguard.core.actions import Announce
from stallguard.core.events import Exited, Heartbeat, Launched, ProbeConnected, ProbeNote, ProcessLeft, Sampled
from stallguard.core.readings import Process
from stallguard.report import attempt_rows, incidents, journal_record, summary, timeline
from stallguard.report.first_screen import first_screen
from tests.report.nights import journal


def heartbeat(second, pid, beats, *, attempt=1, changes=None, loss=None, trains=True):
    moment = 100.0 + second
    return second, Heartbeat(
        0.0, attempt, pid=pid, trains=trains, beats=beats, changes=beats if changes is None else changes,
        beat_at=moment if beats else 0.0, progress_at=moment, phase="step", loss=loss,
    )  # fmt: skip


def greeted(second, pid, place, attempt=1):
    return second, ProbeConnected(0.0, attempt, pid=pid, place=place, command=f"train.py {place}")


@pytest.fixture
def night(tmp_path):
    """A launcher and two trainings side by side, ended by a crash; then both again, to their end."""
    happened = [(0, Launched(0.0, 1, 7)), heartbeat(1, 10, 0, trains=False), greeted(1, 10, "launcher")]
    happened += [greeted(1, 11, "a"), greeted(1, 12, "b")]
    for second in range(2, 61):
        happened += [heartbeat(second, 11, 10 * second), heartbeat(second, 12, 2 * second, loss=1.0 / second)]
        happened += [
            (second, Sampled(0.0, Process(pid=11, cpu=1.0 * second, footprint=1000))),
            (second, Sampled(0.0, Process(pid=12, cpu=0.5 * second, footprint=500))),
        ]
    happened += [(61, Exited(0.0, 1, -9)), (61, Launched(0.0, 2, 8)), greeted(62, 21, "a", 2), greeted(62, 22, "b", 2)]
    happened += [heartbeat(63, 21, 5, attempt=2), heartbeat(63, 22, 7, attempt=2)]
    happened += [(64, ProcessLeft(0.0, 2, pid=21, how="ended")), (64, ProcessLeft(0.0, 2, pid=22, how="failed"))]
    happened += [(65, Exited(0.0, 2, 0))]
    return journal_record.read(journal(tmp_path / "j.jsonl", *sorted(happened, key=lambda pair: pair[0])))


def test_batches_of_all_processes_are_added_up(night):
    tries = attempt_rows.attempts(night)
    assert [(one.batches, one.trainings) for one in tries] == [(720, 2), (12, 2)]
    sums = summary.totals(night, tries, incidents.incidents(night))
    assert (sums.batches, sums.trainings, sums.repeated) == (732, 2, None)


def test_a_training_goes_on_from_one_attempt_to_the_next_by_its_place(night):
    rows = attempt_rows.trainings(attempt_rows.programs(night))
    assert [(one.command, one.attempts, one.batches, one.how) for one in rows] == [
        ("train.py a", 2, 605, "ended"), ("train.py b", 2, 127, "failed"),
    ]  # fmt: skip


def test_a_single_training_behind_a_launcher_is_no_list(tmp_path):
    happened = [
        (0, Launched(0.0, 1, 7)),
        heartbeat(1, 10, 0, trains=False),
        heartbeat(2, 11, 9),
        (3, Exited(0.0, 1, 0)),
    ]
    known = journal_record.read(journal(tmp_path / "j.jsonl", *happened))
    assert attempt_rows.trainings(attempt_rows.programs(known)) == []
    assert [(one.batches, one.trainings) for one in attempt_rows.attempts(known)] == [(9, 1)]


def test_a_program_that_replaced_itself_counts_anew(tmp_path):
    happened = [
        (0, Launched(0.0, 1, 7)),
        heartbeat(1, 11, 40),
        heartbeat(2, 11, 50),
        (3, ProcessLeft(0.0, 1, pid=11, how="replaced")),
    ]
    happened += [heartbeat(4, 11, 3), (5, ProcessLeft(0.0, 1, pid=11, how="ended")), (6, Exited(0.0, 1, 0))]
    known = journal_record.read(journal(tmp_path / "j.jsonl", *happened))
    found = attempt_rows.programs(known)
    assert [(one.counts.batches, one.how) for one in found] == [(50, "replaced"), (3, "ended")]
    assert attempt_rows.attempts(known)[0].batches == 53


def test_the_charts_add_up_what_is_of_each_process_and_keep_apart_what_is_not_one_thing(night):
    made = timeline.timeline(night, attempt_rows.attempts(night), incidents.incidents(night))
    panels = {panel.key: panel for panel in made.panels}
    middle = min(range(len(made.times)), key=lambda index: abs(made.times[index] - 30))
    # What two do at one instant is in one cell.
    pace = panels["rate"].series[0].values[middle - 5 : middle + 5]
    assert sum(pace) / len(pace) == pytest.approx(12, rel=0.1)
    assert panels["cpu"].series[0].values[middle] == pytest.approx(1.5, rel=0.1)
    assert panels["memory"].series[0].values[middle] == pytest.approx(1500, rel=0.1)
    assert [line.name for line in panels["loss"].series] == ["loss"]
    assert max(value for value in panels["rate"].series[0].values if value is not None) < 30


def test_phases_are_those_of_one_process_at_a_time(night):
    made = timeline.timeline(night, attempt_rows.attempts(night), incidents.incidents(night))
    assert [band.kind for band in made.bands if band.began < 60] == ["training"]


def test_parts_that_were_asked_for_and_not_made_are_not_reported(tmp_path):
    whole = Announce("batch.whole", {"text": "batches stay whole", "factor": "1"})
    record = journal_record.read(
        journal(tmp_path / "j.jsonl", (0, Launched(0.0, 1, 7)), (1, Launched(0.0, 2, 8, slices=2)), (2, whole))
    )
    assert [one.factor for one in attempt_rows.attempts(record)] == [1, 1]


def in_keras(second, beats, loss, *, batch, of_epoch=False, broken="", epoch=0):
    return second, Heartbeat(
        0.0, 1, pid=5, trains=True, beats=beats, changes=beats, beat_at=100.0 + second, progress_at=100.0 + second,
        phase="step", source="callbacks", loss=loss, loss_of_epoch=of_epoch, loss_not_finite=broken, batch=batch,
        batches=10, epoch=epoch, epochs=9,
    )  # fmt: skip


def sums_of(tmp_path, *happened):
    record = journal_record.read(journal(tmp_path / "j.jsonl", (0, Launched(0.0, 1, 5)), *happened))
    return summary.totals(record, attempt_rows.attempts(record), [])


def test_the_losses_are_those_that_keras_reports_of_its_epochs(tmp_path):
    results = ProbeNote(0.0, 1, "epoch", "", {"epoch": "1", "values": "loss=1.33829 val_loss=2"}, pid=5)
    sums = sums_of(
        tmp_path,
        in_keras(1, 5, 2.9, batch=5),
        (2, results),  # its record was merged with a later one
        in_keras(3, 25, 1.1, batch=5, epoch=2),
        in_keras(4, 30, 1.0, batch=10, epoch=2, of_epoch=True),
        in_keras(5, 35, 1.7, batch=5, epoch=3),
    )
    assert (sums.first_loss, sums.loss, sums.loss_so_far) == (1.33829, 1.0, False)
    assert summary.progress(sums).endswith("loss 1.0000 (from 1.3383)")


def test_the_mean_of_an_epoch_that_did_not_end_is_called_that(tmp_path):
    sums = sums_of(tmp_path, in_keras(1, 5, 2.5, batch=5))
    assert summary.progress(sums).endswith("loss 2.5000 so far in its epoch (from 2.5000)")


def test_the_results_of_epochs_too_short_for_a_record_are_in_their_notes(tmp_path):
    notes = [
        (second, ProbeNote(0.0, 1, "epoch", "", {"epoch": f"{second}", "values": f"loss={3 - second}"}, pid=5))
        for second in (1, 2)
    ]
    sums = sums_of(tmp_path, in_keras(0.5, 5, 2.9, batch=5), *notes, in_keras(3, 15, 0.7, batch=5, epoch=2))
    assert summary.progress(sums).endswith("loss 1.0000 (from 2.0000)")


def test_a_loss_that_is_not_finite_is_never_told_by_an_older_one(tmp_path):
    said = "the loss is nan from epoch 2, batch 5 on"
    note = ProbeNote(0.0, 1, "nonfinite", said, {"value": "nan"}, pid=5)
    broken = (in_keras(1, 9, 2.5, batch=9), (2, note), in_keras(3, 15, None, batch=5, broken="nan"))
    sums = sums_of(tmp_path, *broken)
    assert (sums.loss, sums.loss_not_finite, sums.broken_loss) == (None, "nan", said)
    assert "loss nan (from 2.5000)" in summary.progress(sums)
    assert "nan" in first_screen("finished", "", [], None, [], resumable=True, broken_loss=said).wrong

    sums = sums_of(tmp_path, *broken, in_keras(4, 20, 0.5, batch=10, of_epoch=True))
    assert (sums.loss, sums.broken_loss) == (0.5, "")
