"""The bench `gpu` says of each training that was killed whether it ended as one that was not."""

from __future__ import annotations

import pytest
from gpu_zoo import resume

PLAIN = [{"part": "resume", "case": "torch", "guarded": False, "digest": "a b"} for _ in range(2)]


def killed(**other):
    """Return the result of a training that was killed after 5 s, resumed at step 120, and ended as the plain one."""
    usual = {"killed": True, "after": 5.0, "code": 0, "digest": "a b", "first": [0, 120], "said": []}
    return {"part": "resume", "case": "torch", "number": 2, "guarded": True, **usual, **other}


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({}, "equal"),
        ({"digest": "a c"}, "SILENT"),
        ({"digest": "a c", "said": ["the script's loop starts over: ..."]}, "said"),
        ({"first": [0, 0]}, "over, unsaid"),
        ({"first": [0, 0], "after": 1.0}, "equal"),  # there was no checkpoint yet
        ({"first": [0, 0], "said": ["fit 1 starts over: ..."]}, "equal"),
        ({"first": [0]}, "not ended"),
        ({"code": None, "digest": ""}, "not ended"),
        ({"killed": False}, "missed"),
    ],
)
def test_a_killed_training_is_judged_by_its_bytes_and_by_what_was_said(other, word):
    assert resume.verdicts([*PLAIN, killed(**other)])[0][1] == word


@pytest.mark.parametrize("plain", [PLAIN[:1], [PLAIN[0], {**PLAIN[1], "digest": "a c"}]])
def test_nothing_is_said_of_a_kind_whose_plain_trainings_differ_or_are_missing(plain):
    assert resume.verdicts([*plain, killed()])[0][1] == "not comparable"


def test_the_table_counts_the_resumed_and_names_what_is_not_equal_and_the_goals_miss_it():
    results = [*PLAIN, killed(), killed(first=[0, 0], after=0.5), killed(number=9, digest="x"), killed(killed=False)]
    text = resume.table([*results, {"part": "resume", "case": "jax", "skipped": "not installed: jax"}])
    row = [cell.strip() for cell in next(line for line in text.splitlines() if "torch" in line).split("|")[1:-1]]
    assert row == ["torch", "3", "2", "1", "2", "0", "1", "0", "0", "0"]
    assert "torch 9, killed after 5.00 s: SILENT" in text
    assert "jax: skipped: not installed: jax" in text
    missed = {goal.name: goal.value for goal in resume.goals(results) if not goal.holds}
    assert missed == {"killed trainings: SILENT": 1, "kills fewer than 50": 47}


def test_only_whole_lines_of_a_training_that_is_killed_count(tmp_path):
    output = tmp_path / "output.txt"
    output.write_text('a warning\n{"pid": 7, "first": 0}\n{"pid": 8, "fi')
    assert resume.lines_of(output) == [{"pid": 7, "first": 0}]
