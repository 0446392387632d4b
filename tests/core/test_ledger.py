"""Where the time of a run went: one function, fed by the core as things happen and by the report from the journal."""

from __future__ import annotations

from typing import Any

import pytest

from stallguard.core import ledger
from stallguard.core.actions import Announce, Conclude
from stallguard.core.events import Event, Exited, Heartbeat, Launched, ProbeConnected, ProbeNote
from stallguard.core.ledger import (
    Interruption,
    Position,
    ProcessPosition,
    batches_trained_again,
    interrupted,
    is_caught_up,
    moved_on,
)
from stallguard.core.time_spent import LOST, Spent, total
from tests.simulation.simulation import Simulation


def heartbeat(at: float, batch: int, attempt: int = 1, epoch: int = 0, pid: int = 7) -> Heartbeat:
    return Heartbeat(
        at=at, attempt=attempt, pid=pid, beats=max(1, batch), beat_at=at, progress_at=at, fits=1, epoch=epoch,
        batch=batch, batches=100,
    )  # fmt: skip


def spent(*happened: Event | tuple[float, object], now: float) -> float:
    return total(times(*happened, now=now), LOST)


def times(*happened: Event | tuple[float, object], now: float) -> Spent:
    known = ledger.Ledger(since=0.0)
    for what in happened:
        at, value = what if isinstance(what, tuple) else (what.at, what)
        known = ledger.after(known, at, value)
    return ledger.spent(known, now)


BEGUN = (Launched(at=0.0, attempt=1, pid=7), ProbeConnected(at=1.0, attempt=1, pid=7, place="p"), heartbeat(50.0, 90))
STALLED = (*BEGUN, (70.0, Announce("training.stalled", {"pid": "7"})))
AGAIN = (
    Exited(at=75.0, attempt=1, code=-15),
    Launched(at=80.0, attempt=2, pid=8),
    ProbeConnected(at=81.0, attempt=2, pid=8, place="p"),
)


def test_a_stall_costs_silence_ending_restart_and_the_batches_that_are_trained_again() -> None:
    resumed = (heartbeat(90.0, 50, 2, pid=8), heartbeat(95.0, 70, 2, pid=8))
    caught_up = heartbeat(99.0, 90, 2, pid=8)

    assert spent(*STALLED, now=72.0) == 22, "from the last progress on"
    assert spent(*STALLED, *AGAIN, *resumed, now=96.0) == 46, "70 of 90 batches are trained"
    assert spent(*STALLED, *AGAIN, *resumed, caught_up, now=500.0) == 49


def test_a_loop_from_scratch_loses_all_that_it_trains_again() -> None:
    def loop(at: float, beats: int, attempt: int) -> Heartbeat:
        return Heartbeat(at=at, attempt=attempt, pid=6 + attempt, beats=beats, beat_at=at, progress_at=at)

    begun = (Launched(at=0.0, attempt=1, pid=7), loop(50.0, 90, 1), Exited(at=51.0, attempt=1, code=-9))
    again = (Launched(at=52.0, attempt=2, pid=8), loop(60.0, 1, 2))

    assert spent(*begun, *again, now=70.0) == 20
    assert spent(*begun, *again, loop(100.0, 90, 2), now=200.0) == 50


def test_a_stall_that_recovers_costs_its_silence() -> None:
    assert (
        spent(*STALLED, (80.0, Announce("training.recovered", {"gap": "30 s"})), heartbeat(81.0, 91), now=300.0) == 30
    )


@pytest.mark.parametrize(("before", "code", "seconds"), [(BEGUN, 0, 0.0), (BEGUN, 1, 25.0), (STALLED, 1, 25.0)])
def test_the_end_of_a_run_costs_what_a_stall_began_or_a_crash_left_unfinished(
    before: tuple, code: int, seconds: float
) -> None:
    ended = (Exited(at=75.0, attempt=1, code=code), (75.0, Conclude(code=code)))

    assert spent(*before, *ended, now=400.0) == seconds


def test_an_attempt_that_crashes_before_it_caught_up_is_one_interruption() -> None:
    crash = (heartbeat(90.0, 10, 2, pid=8), Exited(at=92.0, attempt=2, code=-11))
    third = (Launched(at=100.0, attempt=3, pid=9), ProbeConnected(at=101.0, attempt=3, pid=9, place="p"))

    assert spent(*STALLED, *AGAIN, *crash, *third, heartbeat(140.0, 90, 3, pid=9), now=500.0) == 90


def test_another_training_does_not_end_the_interruption_of_the_first() -> None:
    other = (ProbeConnected(at=81.0, attempt=2, pid=9, place="q"), heartbeat(82.0, 99, 2, pid=9))

    assert spent(*STALLED, *AGAIN, *other, now=100.0) == 50


def test_the_core_counts_what_it_sees() -> None:
    world = Simulation()
    world.train(60)
    silent = world.now
    world.silent(120)
    assert world.run.current.number > 1

    lost = total(ledger.spent(world.run.ledger, world.now), LOST)
    assert lost == pytest.approx(world.now - silent, abs=1.0)


@pytest.mark.parametrize(("resumed", "number"), [((1, 0, 40), 50), ((1, 0, 90), 0), ((2, 0, 0), None), ((1, 0, 95), 0)])
def test_a_resume_says_how_many_batches_are_trained_again(resumed: Position, number: int | None) -> None:
    known = ledger.Ledger(since=0.0)
    for what in (*BEGUN, *AGAIN):
        known = ledger.after(known, what.at, what)

    assert ledger.trained_again(known, 8, resumed) == number


def test_the_note_of_a_resume_is_reported_with_that_number() -> None:
    world = Simulation()
    world.train(60)
    world.exit(-9)
    world.train(5)
    text, facts = ("resuming from the 21:56 checkpoint (epoch 1, batch 20)", {"fit": "1", "epoch": "0", "batch": "20"})
    world.feed(ProbeNote(at=world.now, attempt=2, kind="resume", text=text, facts=facts))

    assert [facts["text"] for facts in world.facts_of("attempt.resumed")] == [f"{text}; 100 batches are trained again"]


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
def test_the_batches_that_are_trained_again(interruption: Interruption, resumed: Position, batches: int | None) -> None:
    assert batches_trained_again(interruption, ProcessPosition("p"), resumed) == batches
