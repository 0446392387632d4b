"""The table of trials: no column without a value, no zero for what is not known, and a choice with its reason."""

from __future__ import annotations

from stallguard.core.trials import Candidate, Trial, choose
from stallguard.report.trial_table import choice_words, table


def test_columns_that_no_trial_knows_are_left_out_and_gaps_are_question_marks() -> None:
    lines = table("size", [("a", Trial(rate=12345.0, spread=1.0)), ("b", Trial(trouble="it stalled"))], "fine")
    assert lines[0].split() == ["size", "batches/s", "rows/s", "memory", "outcome"]
    assert "  12\u202f300 ± 5%  " in lines[1]
    assert lines[1].endswith("fine")
    assert lines[2].split() == ["b", "?", "?", "?", "it", "stalled"]


def test_the_sizes_of_find_batch_are_a_table() -> None:
    tries = [
        ("64 rows", Trial(rows=64, memory=2_000_000_000, rate=10.0, spread=0.1)),
        ("128 rows", Trial(rows=128, trouble="it stalled")),
    ]
    assert table("size", tries, "survives") == [
        "size      batches/s  rows/s  memory  outcome",
        "64 rows   10 ± 5%    640     2 GB    survives",
        "128 rows  ?          ?       ?       it stalled",
    ]


def test_the_figures_of_a_gpu_are_shown_if_one_trial_has_them() -> None:
    seen = Trial(rate=2.0, rows=8, memory=3 * 10**9, cores=1.26, gpu=0.0, gpu_memory=10**9, joules=40.0)
    lines = table("setting", [("cpu", Trial(rate=1.0)), ("gpu", seen)], "measured")
    assert lines[0].split("  ")[-1] == "outcome"
    for text in ("16", "3 GB", "1.3", "0%", "1 GB", "40 J/batch"):
        assert f" {text} " in lines[2], text
    assert "GPU energy" in lines[0]
    assert "0" not in lines[1].replace("15%", "")


def words(*trials: tuple[str, Trial, int]) -> str:
    choice = choose([Candidate(trial, changes) for _, trial, changes in trials])
    assert choice is not None
    return "\n".join(choice_words([name for name, _, _ in trials], [trial for _, trial, _ in trials], choice))


def test_what_is_chosen_is_said_with_its_reason() -> None:
    fast, slow = Trial(rate=30.0, rows=10, spread=0.1), Trial(rate=10.0, rows=10, spread=0.1)
    assert words(("cpu", fast, 1), ("gpu", slow, 0)) == "choose cpu: 300 rows/s, 3 times as fast as gpu"
    equal = words(("cpu", fast, 1), ("gpu", fast, 0), ("tpu", Trial(trouble="it stalled"), 0))
    assert "cpu is as fast within what is uncertain; gpu is kept, because it changes less" in equal
    assert equal.endswith("not compared: tpu")
    assert "idle machine" not in equal


def test_a_busy_machine_is_named_if_settings_are_equal() -> None:
    crowded = Trial(rate=30.0, spread=0.1, others=0.5, waited=0.4)
    assert "measure again on an idle machine" in words(("a", crowded, 0), ("b", Trial(rate=31.0), 0))
