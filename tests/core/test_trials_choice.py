"""Which setting is chosen: the faster one, and of equal ones the simplest and cheapest."""

from __future__ import annotations

from stallguard.core import trials
from stallguard.core.trials import Candidate, Choice, Trial, choose


def chosen(*candidates: Candidate) -> Choice:
    found = choose(candidates)
    assert found is not None
    return found


def tried(rate: float | None, spread: float = 0.0, changes: int = 0, **facts: object) -> Candidate:
    return Candidate(Trial(rate=rate, spread=spread, **facts), changes)  # type: ignore[arg-type]


def test_the_faster_one_is_chosen_and_how_much_faster_it_is() -> None:
    choice = chosen(tried(30.0, changes=0), tried(90.0, changes=1), tried(10.0))
    assert (choice.chosen, choice.reason, choice.equal) == (1, trials.FASTER, ())
    assert (choice.next, choice.times) == (0, 3.0)


def test_two_that_are_nearer_than_their_spread_are_equal_and_the_one_that_changes_less_is_kept() -> None:
    choice = chosen(tried(100.0, 8.0, changes=1), tried(90.0, 8.0, changes=0), tried(50.0, 8.0))
    assert (choice.chosen, choice.reason, choice.equal, choice.next) == (1, trials.FEWER_CHANGES, (0,), 2)
    assert chosen(tried(100.0, 1.0, changes=1), tried(80.0, 1.0, changes=0)).chosen == 0


def test_trials_without_any_spread_still_differ_by_what_two_of_one_setting_do() -> None:
    assert chosen(tried(100.0, 0.0, changes=1), tried(95.0, 0.0)).chosen == 1
    unmeasured = chosen(Candidate(Trial(rate=100.0), 1), Candidate(Trial(rate=80.0), 0))
    assert unmeasured.chosen == 1, "a trial that is too short for a spread is more uncertain, not exact"


def test_what_other_programs_took_makes_a_pace_uncertain_unless_the_training_did_not_wait() -> None:
    assert chosen(tried(100.0, 1.0, 1), tried(70.0, 1.0, others=0.5, waited=0.5)).chosen == 1
    assert chosen(tried(100.0, 1.0, 1), tried(70.0, 1.0, others=0.9, waited=0.01)).chosen == 0
    both = chosen(tried(400.0, 1.0, 1, others=0.9, waited=2.0), tried(100.0, 1.0, others=0.9, waited=2.0))
    assert both.chosen == 0, "four times as fast is faster on a busy machine too"


def test_of_equal_ones_less_memory_then_fewer_rows_then_the_first_decide() -> None:
    lean = chosen(tried(100.0, memory=900), tried(100.0, memory=500), tried(100.0, memory=510))
    assert (lean.chosen, lean.reason) == (1, trials.FIRST)
    assert chosen(tried(100.0, memory=900), tried(100.0, memory=500)).reason == trials.LESS_MEMORY
    small = chosen(tried(50.0, rows=64), tried(100.0, rows=32))
    assert (small.chosen, small.reason) == (1, trials.FEWER_ROWS)
    unknown = chosen(tried(100.0), tried(100.0, memory=500))
    assert unknown.chosen == 1


def test_different_batches_are_compared_by_rows() -> None:
    choice = chosen(tried(300.0, rows=16), tried(100.0, rows=256))
    assert (choice.chosen, choice.by_rows) == (1, True)
    assert not chosen(tried(300.0, rows=16), tried(100.0)).by_rows


def test_a_setting_with_trouble_is_not_chosen_however_fast_it_was() -> None:
    assert chosen(tried(900.0, trouble="it stalled"), tried(1.0)).chosen == 1
    assert choose([tried(900.0, trouble="it stalled"), tried(None)]) is None
    assert choose([]) is None
