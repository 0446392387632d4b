"""Where the time of a run went: one function, fed by the core as things happen and by the report from the journal."""

from __future__ import annotations

import pytest

from stallguard.core import ledger
from stallguard.core.actions import Announce, Conclude
from stallguard.core.events import Event, Exited, Heartbeat, Launched, ProbeConnected, ProbeNote
from stallguard.core.redone import Position
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
    known = ledger.begin(0.0)
    for what in happened:
        at, value = what if isinstance(what, tuple) else (what.at, what)
        known = ledger.after(known, at, value)
    return ledger.spent(known, now)


BEGUN = (
    Launched(at=0.0, attempt=1, pid=7),
    ProbeConnected(at=1.0, attempt=1, pid=7, place="p"),
    heartbeat(50.0, 90),
)
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
        spent(
            *STALLED, (80.0, Announce("training.recovered", {"gap": "30 s"})), heartbeat(81.0, 91), now=300.0
        )
        == 30
    )


@pytest.mark.parametrize(
    ("before", "code", "seconds"), [(BEGUN, 0, 0.0), (BEGUN, 1, 25.0), (STALLED, 1, 25.0)]
)
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


@pytest.mark.parametrize(
    ("resumed", "number"), [((1, 0, 40), 50), ((1, 0, 90), 0), ((2, 0, 0), None), ((1, 0, 95), 0)]
)
def test_a_resume_says_how_many_batches_are_trained_again(resumed: Position, number: int | None) -> None:
    known = ledger.begin(0.0)
    for what in (*BEGUN, *AGAIN):
        known = ledger.after(known, what.at, what)

    assert ledger.trained_again(known, 8, resumed) == number


def test_the_note_of_a_resume_is_reported_with_that_number() -> None:
    world = Simulation()
    world.train(60)
    world.exit(-9)
    world.train(5)
    text, facts = (
        "resuming from the 21:56 checkpoint (epoch 1, batch 20)",
        {"fit": "1", "epoch": "0", "batch": "20"},
    )
    world.feed(ProbeNote(at=world.now, attempt=2, kind="resume", text=text, facts=facts))

    assert [facts["text"] for facts in world.facts_of("attempt.resumed")] == [
        f"{text}; 100 batches are trained again"
    ]
