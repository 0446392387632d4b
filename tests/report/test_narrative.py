"""A sentence has one line, and its nouns agree with its numbers."""

from __future__ import annotations

import pytest

from stallguard.report.narrative import sentence


@pytest.mark.parametrize(("number", "words"), [("0", "0 batches"), ("1", "1 batch"), ("209", "209 batches")])
def test_the_last_line_of_a_run_counts_its_batches(number: str, words: str) -> None:
    facts = {"batches": number, "duration": "38 s", "trouble": ", 1 stall"}

    assert sentence("run.finished", facts) == f"finished: {words} in 38 s, 1 stall"
    assert f"({words} in 38 s" in sentence("run.gave_up", facts | {"why": "it is over"})


def test_a_fact_that_is_not_known_has_no_plural_of_its_own() -> None:
    assert sentence("run.finished", {}) == "finished: ? batches in ??"


def test_what_a_fact_contains_stays_on_the_line() -> None:
    assert sentence("run.started", {"command": "a\nb\x1b[2J", "run": "one"}) == "guarding a␊b␛[2J (run one)"
