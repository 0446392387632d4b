"""Small questions about a run: how far a training got, how many batches were trained, whether it is muted."""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import fold
from stallguard.core.detection import detector
from stallguard.core.events import Heartbeat
from stallguard.core.history import History
from stallguard.core.run import Training, beats, is_muted, record, with_attempt


def training(key: int, batches: int, **more: object) -> Training:
    history = History(heartbeat=Heartbeat(at=9.0, attempt=1, beats=batches, fits=1, epoch=2, batch=batches))
    return Training(history, detector.start(), key=key, pid=40 + key, trains=True, began=1.0, **more)


def test_a_training_that_ended_without_an_error_got_further_than_any_other() -> None:
    near, far = training(1, 10, over="ended"), training(2, 99)
    assert near.reached > far.reached > training(3, 98).reached
    assert record(training(1, 10), "ended", 5.0).reached == near.reached


def test_batches_of_trainings_that_are_over_are_in_the_totals_and_not_counted_twice() -> None:
    run = fold.begin(0.0)
    run = with_attempt(run, trainings=(training(1, 10, over="failed"), training(2, 7)))
    run = replace(run, totals=replace(run.totals, beats=10))
    assert beats(run) == 17


def test_a_run_is_muted_until_its_time_and_no_longer() -> None:
    run = replace(fold.begin(0.0), quiet_until=60.0)
    assert [is_muted(replace(run, now=now)) for now in (59.0, 60.0)] == [True, False]
