"""Results of epochs become lines by chart; what is no plain name or no number is left out."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from stallguard.core.events import Heartbeat, Launched, ProbeConnected, ProbeNote
from stallguard.report import epoch_results, journal_record
from stallguard.report.epoch_results import lines
from stallguard.report.programs import EPOCH, PLAIN, epoch_values
from tests.report.nights import journal


def note(second, results, *, attempt=1, pid=7):
    return second, ProbeNote(0.0, attempt, EPOCH, "", {"epoch": "1", "values": results}, pid=pid)


def test_a_metric_stands_with_its_validation_and_the_learning_rate_alone(tmp_path):
    path = journal(
        tmp_path / "j.jsonl",
        note(10, "loss=0.5 val_loss=0.6 accuracy=0.7 val_accuracy=0.65 learning_rate=0.001"),
        note(20, "loss=0.4 val_loss=0.7 accuracy=0.8 val_accuracy=0.66 learning_rate=0.0005"),
    )
    found = lines(journal_record.read(path))

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

    [(name, level)] = epoch_results.losses(record, record.heartbeat)

    assert name == "loss"
    assert level.value.tolist() == [8.5, 8.0, 6.0, 5.5]


def test_two_trainings_at_once_have_two_lines(tmp_path):
    happened = [
        (s, Heartbeat(0.0, 1, pid=pid, beats=s, beat_at=100.0 + s, loss=float(pid)))
        for s in (10, 20)
        for pid in (7, 8)
    ]
    record = journal_record.read(journal(tmp_path / "j.jsonl", (0, Launched(0.0, 1, 7)), *happened))

    assert [name for name, _ in epoch_results.losses(record, record.heartbeat)] == [
        "training 1",
        "training 2",
    ]


@given(st.text(max_size=80))
def test_foreign_words_are_numbers_with_plain_names_or_nothing(text):
    for name, value in epoch_values({"values": text}).items():
        assert PLAIN.match(name)
        assert math.isfinite(value)
