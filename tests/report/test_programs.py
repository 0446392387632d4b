"""What a report makes of a run of several processes."""

from __future__ import annotations

import pytest

from stallguard.core.actions import Announce
from stallguard.core.events import Exited, Heartbeat, Launched, ProbeConnected, ProcessLeft, Sampled
from stallguard.core.readings import Process
from stallguard.report import attempt_rows, incidents, journal_record, programs, timeline, totals
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
    happened += [
        (61, Exited(0.0, 1, -9)),
        (61, Launched(0.0, 2, 8)),
        greeted(62, 21, "a", 2),
        greeted(62, 22, "b", 2),
    ]
    happened += [heartbeat(63, 21, 5, attempt=2), heartbeat(63, 22, 7, attempt=2)]
    happened += [
        (64, ProcessLeft(0.0, 2, pid=21, how="ended")),
        (64, ProcessLeft(0.0, 2, pid=22, how="failed")),
    ]
    happened += [(65, Exited(0.0, 2, 0))]
    return journal_record.read(journal(tmp_path / "j.jsonl", *sorted(happened, key=lambda pair: pair[0])))


def test_batches_of_all_processes_are_added_up(night):
    tries = attempt_rows.attempts(night)
    assert [(one.batches, one.trainings) for one in tries] == [(720, 2), (12, 2)]
    sums = totals.totals(night, tries, incidents.incidents(night))
    assert (sums.batches, sums.trainings, sums.repeated) == (732, 2, None)


def test_a_training_goes_on_from_one_attempt_to_the_next_by_its_place(night):
    rows = programs.trainings(programs.programs(night))
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
    assert programs.trainings(programs.programs(known)) == []
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
    found = programs.programs(known)
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
        journal(
            tmp_path / "j.jsonl", (0, Launched(0.0, 1, 7)), (1, Launched(0.0, 2, 8, factor=2)), (2, whole)
        )
    )
    assert [one.factor for one in attempt_rows.attempts(record)] == [1, 1]
