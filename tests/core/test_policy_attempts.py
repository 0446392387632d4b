"""What a run remembers of its attempts."""

from __future__ import annotations

from stallguard.core.events import Heartbeat
from stallguard.core.policy import KEPT, AttemptHistory, Position, add_attempt, one_trouble, position, spent
from stallguard.core.verdicts import Finding
from tests.simulation.attempts import Ending, history_of

WAIT = [Finding("device-wait", 0.8)]


def past_of(*reached: int, lasted: float = 10.0) -> AttemptHistory:
    past = AttemptHistory()
    for number, at in enumerate(reached):
        began = number * lasted
        past = add_attempt(past, history_of(Ending("", at=at)), WAIT, 1, "default", began, began + lasted)
    return past


def heartbeat(**facts: int) -> Heartbeat:
    return Heartbeat(at=0.0, attempt=1, **facts)


def test_a_later_fit_is_further_than_a_later_batch() -> None:
    assert position(heartbeat(fits=2, epoch=0, batch=1)) > position(heartbeat(fits=1, epoch=9, batch=99))
    assert position(heartbeat(fits=1, epoch=3, batch=0)) > position(heartbeat(fits=1, epoch=2, batch=99))


def test_without_epochs_the_optimizer_counts_else_the_batches() -> None:
    assert position(heartbeat(fits=1, iterations=500, beats=20)) > position(heartbeat(fits=1, iterations=400, beats=90))
    assert position(heartbeat(beats=21)) > position(heartbeat(beats=20))
    assert position(heartbeat()) > position(None)


def test_only_a_restart_that_comes_no_further_is_fruitless() -> None:
    assert past_of(60).restarts_without_progress == 0
    assert past_of(60, 60).restarts_without_progress == 1
    assert past_of(60, 60, 59).restarts_without_progress == 2
    assert past_of(60, 60, 61).restarts_without_progress == 0
    assert past_of(60, 100, 80, 90).restarts_without_progress == 2


def test_a_first_attempt_that_never_trained_is_no_fruitless_restart() -> None:
    assert past_of(0).restarts_without_progress == 0


def test_a_trouble_is_all_that_occurred_in_a_row_in_the_same_phase() -> None:
    assert len(one_trouble(past_of(1, 2, 3), healthy=100.0)) == 3
    assert one_trouble(AttemptHistory(), healthy=100.0) == ()


def test_a_healthy_attempt_starts_the_count_anew() -> None:
    assert len(one_trouble(past_of(1, 2, 3, lasted=200.0), healthy=100.0)) == 1


def test_restarts_older_than_the_window_are_spent_no_more() -> None:
    past = past_of(1, 2, 3, 4)  # began at 0, 10, 20, 30; the last ended at 40
    assert spent(past, 1000.0) == 3
    assert spent(past, 25.0) == 2
    assert spent(AttemptHistory(), 25.0) == 0


def test_a_year_of_restarts_is_not_kept() -> None:
    past = past_of(*range(KEPT + 50))
    assert len(past.attempts) == KEPT
    assert past.best == {"": past.attempts[-1].position}


def several(*attempts: dict[str, Position]) -> AttemptHistory:
    past = AttemptHistory()
    for number, reached in enumerate(attempts):
        story = history_of(Ending("", at=1))
        past = add_attempt(past, story, WAIT, 1, "default", 10.0 * number, 10.0 * number + 10.0, reached)
    return past


OVER, FIRST, SECOND = (1, 1, 4, 9, 0), (0, 1, 1, 0, 0), (0, 1, 2, 0, 0)


def test_a_second_training_that_begins_after_a_finished_first_one_is_progress() -> None:
    assert several({"a": FIRST}, {"a": OVER, "b": FIRST}).restarts_without_progress == 0
    assert several({"a": SECOND}, {"a": OVER, "b": FIRST}, {"a": OVER, "b": SECOND}).restarts_without_progress == 0
    assert several({"a": OVER, "b": FIRST}, {"a": OVER, "b": FIRST}).restarts_without_progress == 1


def test_of_trainings_side_by_side_one_that_comes_further_is_enough() -> None:
    assert several({"a": FIRST, "b": SECOND}, {"a": SECOND, "b": FIRST}).restarts_without_progress == 0
    assert several({"a": FIRST, "b": SECOND}, {"a": FIRST, "b": FIRST}).restarts_without_progress == 1


def test_trainings_under_new_names_that_come_no_further_are_no_progress() -> None:
    assert several({"a": FIRST}, {"b": FIRST}, {"c": FIRST}).restarts_without_progress == 2
    assert several({"a": FIRST}, {"b": SECOND}).restarts_without_progress == 0
