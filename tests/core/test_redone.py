"""How far a training is, which position an attempt came to, and when a later one is as far."""

from __future__ import annotations

from typing import Any

import pytest

from stallguard.core.events import Heartbeat
from stallguard.core.redone import (
    Interruption,
    Position,
    ProcessPosition,
    interrupted,
    is_caught_up,
    moved_on,
    trained_again,
)


def record(**fields: Any) -> Heartbeat:
    usual = {"beats": 1, "fits": 1, "epoch": 0, "batch": 0, "batches": 100}
    return Heartbeat(at=9.0, attempt=2, pid=7, **(usual | fields))


def after(*records: Heartbeat) -> ProcessPosition:
    process = ProcessPosition(place="p")
    for one in records:
        process = moved_on(process, one)
    return process


# ---- where a process is


@pytest.mark.parametrize(
    ("records", "position"),
    [
        ([record(batch=30)], (1, 0, 30)),
        ([record(beats=0, batch=30)], None),
        ([record(batch=-1)], (1, 0, 0)),  # an epoch that has begun
        ([record(epoch=2, batch=50, skipped=40)], (1, 2, 50)),  # a resumed epoch
        # A loop without epochs: what its optimizer counts, or the batches that were seen.
        ([record(epoch=-1, beats=30, iterations=500)], (1, -1, 500)),
        ([record(epoch=-1, beats=30, iterations=-1, skipped=40)], (1, -1, 70)),
    ],
)
def test_the_position_of_a_process(records: list[Heartbeat], position: Position | None) -> None:
    assert after(*records).position == position


def test_a_record_keeps_the_length_of_an_epoch_if_it_is_known() -> None:
    assert after(record(batches=100)).size == 100
    assert after(record(batches=-1)).size == 0


# ---- what an attempt came to


def test_the_process_that_stalled_is_what_was_interrupted() -> None:
    first, second = ProcessPosition("a", position=(1, 0, 5), progress=1.0), ProcessPosition("b", progress=9.0)

    assert interrupted({7: first, 8: second}, 8).place == "b"


def test_else_it_is_the_process_that_trained_and_made_progress_last() -> None:
    early = ProcessPosition("early", position=(1, 0, 5), size=100, progress=1.0)
    late = ProcessPosition("late", position=(1, 0, 3), size=50, progress=2.0)
    launcher = ProcessPosition("launcher", progress=3.0)

    assert interrupted({1: early, 2: late, 3: launcher}, 0) == Interruption("late", (1, 0, 3), 50)
    assert interrupted({2: late, 1: early, 3: launcher}, 99).place == "late"
    assert interrupted({}, 0) == Interruption()


# ---- when a later attempt is as far


@pytest.mark.parametrize(
    ("goal", "place", "position", "is_so"),
    [
        ((1, 2, 50), "p", (1, 2, 49), False),
        ((1, 2, 50), "p", (1, 2, 50), True),
        ((1, 2, 50), "p", (1, 3, 0), True),
        ((1, 2, 50), "p", (2, 0, 0), True),
        ((1, 2, 50), "q", (1, 3, 0), False),  # another training
        ((1, 2, 50), "p", None, False),
        # The attempt before came to no batch: the first one of any training is new.
        (None, "q", (1, 0, 1), True),
        (None, "q", None, False),
    ],
)
def test_an_attempt_is_as_far_at_the_position_of_the_same_training(
    goal: Position | None, place: str, position: Position | None, is_so: bool
) -> None:
    process = ProcessPosition(place, position=position)

    assert is_caught_up(Interruption("p", goal, 100), process) is is_so


@pytest.mark.parametrize(
    ("interruption", "resumed", "batches"),
    [
        (Interruption("p", (1, 2, 50), 100), (1, 2, 40), 10),
        (Interruption("p", (1, 2, 50), 100), (1, 1, 90), 60),
        (Interruption("p", (1, 2, 50), 100), (1, 2, 60), 0),
        (Interruption("p", (1, 2, 50), 0), (1, 2, 40), 10),  # within one epoch its length does not matter
        (Interruption("p", (1, 2, 50), 0), (1, 1, 90), None),
        (Interruption("p", (2, 0, 50), 100), (1, 0, 40), None),  # another fit
        (Interruption("p", (1, -1, 500), 0), (1, -1, 400), None),  # a loop without epochs
        (Interruption("p", None), (1, 0, 0), None),
        (Interruption("q", (1, 2, 50), 100), (1, 2, 40), None),  # another training
    ],
)
def test_the_batches_that_are_trained_again(
    interruption: Interruption, resumed: Position, batches: int | None
) -> None:
    assert trained_again(interruption, ProcessPosition("p"), resumed) == batches
